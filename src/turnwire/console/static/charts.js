// Charts over time, drawn by uPlot (vendor/, MIT). A chart keeps its element and only gets new data.
import { count, element, seconds } from "./timeline.js";

let library = null;
function uPlot() {
  library ??= new Promise((resolve, reject) => {
    document.head.append(element("link", { rel: "stylesheet", href: new URL("uPlot.min.css", import.meta.url).href }));
    document.head.append(element("script", { src: new URL("uPlot.iife.min.js", import.meta.url).href, onload: () => resolve(window.uPlot), onerror: reject }));
  });
  return library;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const HEIGHT = 160;
// Seconds between two marks of the time axis.
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400];
const charts = [];

class Chart {
  constructor(title, options) {
    this.place = element("div", { class: "plot" });
    this.root = element("section", { class: "card chart", "aria-label": title }, element("h2", {}, title), this.place);
    this.options = options;
    this.data = null;
    charts.push(this);
    new ResizeObserver(() => this.size()).observe(this.place);
  }

  show(data) {
    this.data = data;
    this.root.hidden = !data[0].length;
    if (this.root.hidden) return this.root;
    if (this.plot) this.plot.setData(data);
    else this.make();
    return this.root;
  }

  async make() {
    if (this.making) return;
    this.making = true;
    const made = await uPlot();
    const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const { series, scale, values, filter } = this.options(made);
    this.plot?.destroy();
    this.plot = new made({ width: this.place.clientWidth || 600, height: HEIGHT, series: [{}, ...series], scales: { y: scale }, cursor: { y: false, points: { show: false } }, legend: { live: false }, axes: [{ ...axis, grid: { show: false }, space: 110, size: 30, values: (_, ticks, __, ___, step) => ticks.map((tick) => clock(step < 60 ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } : { hour: "2-digit", minute: "2-digit" }, tick)), incrs: STEPS }, { ...axis, values, size: 58, space: 28, ...(filter ? { filter, grid: { ...axis.grid, filter } } : {}) }] }, this.data, this.place);
    this.making = false;
  }

  size() {
    if (this.plot && this.place.clientWidth) this.plot.setSize({ width: this.place.clientWidth, height: HEIGHT });
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const chart of charts) if (chart.plot) chart.make(); });

const clock = (moment, tick) => new Date(tick * 1000).toLocaleTimeString([], moment);
const dots = (name, shade) => ({ label: name, stroke: shade, fill: shade, paths: () => null, points: { show: true, size: 6, fill: shade, stroke: shade } });
let firsts = null;
export function firstTokens(turns) {
  firsts ??= new Chart("Time to the first token", () => ({
    series: [dots("prefix held", colour("good")), dots("broken", colour("bad")), dots("first of a session", colour("brand"))],
    scale: { distr: 3 },
    values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : seconds(tick))),
    // Powers of ten alone.
    filter: (_, ticks) => ticks.map((tick) => (Math.abs(Math.log10(tick) % 1) < 1e-6 ? tick : null)),
  }));
  const rows = turns.filter((turn) => turn.first_token !== null).slice(0, 400).reverse();
  const of = (fits) => rows.map((turn) => (fits(turn) ? Math.max(turn.first_token, 0.001) : null));
  const held = (turn) => turn.prefix.startsWith("held");
  return firsts.show([rows.map((turn) => turn.at), of((turn) => held(turn) && !turn.lost), of((turn) => turn.lost > 0), of((turn) => !held(turn) && !turn.lost)]);
}

const BUCKETS = 48;
const PARTS = [["output", "output", (turn) => turn.output_tokens], ["new", "new", (turn) => Math.max(turn.prompt_tokens - turn.cached_tokens - turn.lost, 0)], ["read again", "reread", (turn) => turn.lost], ["cached", "cached", (turn) => turn.cached_tokens]];
let tokens = null;
export function tokensOverTime(turns) {
  tokens ??= new Chart("Tokens over time", (made) => ({
    series: PARTS.map(([name, shade]) => ({ label: name, stroke: colour(shade), fill: colour(shade), width: 0, paths: made.paths.bars({ size: [0.8, 24] }), points: { show: false } })),
    scale: { range: (_, low, high) => [0, Math.max(high * 1.05, 1)] },
    values: (_, ticks) => ticks.map((tick) => count(tick)),
  }));
  if (!turns.length) return tokens.show([[]]);
  const from = turns[turns.length - 1].at;
  const step = Math.max((turns[0].at - from) / BUCKETS, 1);
  const size = Math.floor((turns[0].at - from) / step) + 1;
  const bucket = (turn) => Math.min(Math.floor((turn.at - from) / step), size - 1);
  const sums = PARTS.map(([, , part]) => { const row = Array(size).fill(0); for (const turn of turns) row[bucket(turn)] += part(turn); return row; });
  // Bars stand on one another: each is drawn with all below it, the tallest first.
  for (let place = sums.length - 2; place >= 0; place -= 1) sums[place] = sums[place].map((value, at) => value + sums[place + 1][at]);
  return tokens.show([Array.from({ length: size }, (_, place) => from + place * step), ...sums]);
}
