package curves

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// plot is a chart of lines. Both axes are logarithmic, but for y where percent is
// set.
type plot struct {
	title, x, y string
	percent     bool
	xTicks      []tick
	yTicks      []tick
	lines       []line
}

type tick struct {
	at    float64
	label string
}

type line struct {
	label  string
	points []point
	dashed bool // for what is not ours
}

type point struct{ x, y float64 }

const (
	width, height            = 720.0, 380.0
	left, right, top, bottom = 70.0, 190.0, 40.0, 50.0
)

// colours can be told apart by people who see few (Okabe and Ito).
var colours = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"}

func scale(v, from, to float64, linear bool) float64 {
	if linear {
		return (v - from) / (to - from)
	}
	return math.Log(v/from) / math.Log(to/from)
}

func (p *plot) at(v point) (x, y float64) {
	x0, x1 := p.xTicks[0].at, p.xTicks[len(p.xTicks)-1].at
	y0, y1 := p.yTicks[0].at, p.yTicks[len(p.yTicks)-1].at
	x = left + (width-left-right)*scale(max(v.x, x0), x0, x1, false)
	y = height - bottom - (height-top-bottom)*scale(max(v.y, y0), y0, y1, p.percent)
	return x, y
}

// svg draws the plot.
func (p *plot) svg() string {
	var b strings.Builder
	text := func(x, y float64, anchor, style, s string) {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, style, html.EscapeString(s))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12" fill="#333">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(p.title))
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="#fff"/>`+"\n", width, height)
	text(left, 24, "start", ` font-size="14" font-weight="bold"`, p.title)
	for _, t := range p.xTicks {
		x, y := p.at(point{t.at, p.yTicks[0].at})
		fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f" stroke="#ddd"/>`+"\n", x, y, top)
		text(x, y+18, "middle", "", t.label)
	}
	for _, t := range p.yTicks {
		x, y := p.at(point{p.xTicks[0].at, t.at})
		fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="#ddd"/>`+"\n", x, y, width-right)
		text(x-8, y+4, "end", "", t.label)
	}
	text((left+width-right)/2, height-10, "middle", "", p.x)
	fmt.Fprintf(&b, `<text transform="translate(16 %.0f) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+height-bottom)/2, html.EscapeString(p.y))
	for i, l := range p.lines {
		colour, dash := colours[i%len(colours)], ""
		if l.dashed {
			colour, dash = "#555", ` stroke-dasharray="6 4"`
		}
		fmt.Fprintf(&b, `<path fill="none" stroke="%s" stroke-width="2"%s d="`, colour, dash)
		for j, v := range l.points {
			x, y := p.at(v)
			fmt.Fprintf(&b, "%c%.1f %.1f", "ML"[min(j, 1)], x, y)
		}
		b.WriteString(`"/>` + "\n")
		y := top + 10 + 22*float64(i)
		fmt.Fprintf(&b, `<path d="M%.0f %.0fh24" stroke="%s" stroke-width="2"%s/>`+"\n", width-right+14, y, colour, dash)
		text(width-right+44, y+4, "start", "", l.label)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
