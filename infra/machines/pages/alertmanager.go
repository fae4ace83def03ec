// Takes the place of ui/web.go where Alertmanager is built here: its makers' page comes from npm and is
// not in the module. This page is alertmanager.html.

package ui

import (
	_ "embed"
	"net/http"

	"github.com/prometheus/common/route"
)

//go:embed page.html
var page []byte

// Register serves the page.
func Register(r *route.Router) {
	r.Get("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page)
	})
}
