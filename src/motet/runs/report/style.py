"""How a report looks, in the light and in the dark."""

CSS = """
:root{color-scheme:light dark;--paper:#f8fafc;--card:#fff;--ink:#0f172a;--soft:#64748b;--rule:#e2e8f0;--line:#0072b2;
--compute:#0072b2;--environments:#009e73;--replay:#cc79a7;--send:#e69f00;--receive:#d55e00;--wait:#cbd5e1}
@media (prefers-color-scheme:dark){:root{--paper:#0b1120;--card:#131c2e;--ink:#e2e8f0;--soft:#94a3b8;--rule:#26334a;
--line:#56b4e9;--compute:#3b9ed8;--environments:#1fbf8f;--replay:#e09cc2;--send:#f0b429;--receive:#f07a3a;--wait:#3b4a63}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:17px;margin:34px 0 10px}
p{margin:0 0 10px;color:var(--soft)}
code,pre,.mono{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:13px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,150px),1fr));gap:10px;margin:18px 0 0}
.tile,.card{background:var(--card);border:1px solid var(--rule);border-radius:10px}
.tile{padding:10px 14px}.tile b{display:block;font-size:21px;font-weight:650;overflow-wrap:anywhere}
.tile span{color:var(--soft);font-size:13px}
.card{padding:14px}
.grid2{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr));gap:12px}
.scroll{overflow-x:auto}
.wide>svg{min-width:680px}
svg{display:block;width:100%;height:auto}
.loop svg{width:auto;max-width:100%;margin:0 auto}
.loop.scroll svg{min-width:640px}
.chart text,.time text{font-size:11px;fill:var(--soft);font-family:inherit}
.chart .name{font-size:13px;fill:var(--ink);font-weight:600}
.chart .last{font-size:13px;fill:var(--ink);text-anchor:end}
.chart .y{text-anchor:end}
.grid{stroke:var(--rule);stroke-width:1;fill:none}
.line{fill:none;stroke-width:1.9;stroke-linejoin:round;stroke-linecap:round}
.area{opacity:.09}
.stripe rect{fill:transparent}.stripe circle{opacity:0}.stripe:hover circle{opacity:1}
.time .lane{fill:var(--ink);font-size:12px}
.k-compute{fill:var(--compute)}.k-environments{fill:var(--environments)}.k-replay{fill:var(--replay)}
.k-send{fill:var(--send)}.k-receive{fill:var(--receive)}.k-wait{fill:var(--wait)}
.time rect:hover{opacity:.75}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:10px 0 0;color:var(--soft);font-size:13px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--rule);vertical-align:top}
th{color:var(--soft);font-weight:500;font-size:13px}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td.v{overflow-wrap:anywhere}
tr:last-child td{border-bottom:0}
video,.film{display:block;max-width:100%;margin:0 auto;border-radius:8px;background:#f8fafc}
details{margin-top:10px}summary{cursor:pointer;color:var(--soft)}
pre{overflow-x:auto;margin:8px 0 0}
.white{background:#fff}
.agree{color:var(--environments)}.differ{color:var(--receive);font-weight:600}
footer{margin-top:40px;color:var(--soft);font-size:13px}
"""
