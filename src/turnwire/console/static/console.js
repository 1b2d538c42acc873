// The console: one module that asks the gateway for its data and draws one view at a time.
import { count, element, legend, seconds, timeline, tokenBar, when, WORDS } from "./timeline.js";
import { turnPage } from "./turn.js";

const view = document.getElementById("view");
const pulse = document.getElementById("pulse");
const state = { turns: [], live: [], known: new Set(), older: null };
// Sessions whose turns were all asked for.
const whole = new Set();
const KEPT = 20000;
const CHUNK = 60;
// How many rows of a list were drawn: a list that is drawn anew is no shorter than before.
let reached = CHUNK;
const payloads = new Map();
// Charts are of the gateway's page alone: a page that was sent to somebody has one session, and no library.
let plots = null;
const ROUTES = { only: "there is no other", session: "its conversation is there", prefix: "it holds most of the prompt", load: "it has the least to do" };
// A page that was written from a capture has its data inside.
const embedded = JSON.parse(document.getElementById("capture")?.textContent ?? "null");

const secret = () => sessionStorage.getItem("turnwire-key");
// The gateway's address; a proxy may serve it under a path of its own.
const BASE = embedded ? "" : new URL("..", import.meta.url).href.replace(/\/$/, "");
const headers = () => (secret() ? { authorization: `Bearer ${secret()}` } : {});

async function ask(path, options = {}) {
  const answer = await fetch(BASE + path, { ...options, headers: headers() });
  if (answer.status === 401 || answer.status === 403) {
    await askForKey();
    return ask(path, options);
  }
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer;
}

function askForKey() {
  const dialog = document.getElementById("key");
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => { sessionStorage.setItem("turnwire-key", document.getElementById("secret").value); resolve(); }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
}

function keep(turns) {
  for (const turn of turns) if (!state.known.has(turn.turn_id)) { state.known.add(turn.turn_id); state.turns.unshift(turn); }
  state.turns.sort((a, b) => b.at - a.at);
  for (const gone of state.turns.splice(KEPT)) state.known.delete(gone.turn_id);
}

async function asked(query) {
  const page = await (await ask(`/admin/turns?limit=1000${query}`)).json();
  keep(page.turns);
  return page.older;
}

async function follow() {
  for (;;) {
    try {
      state.older = await asked("");
      whole.clear();
      draw();
      const reader = (await ask("/admin/events")).body.pipeThrough(new TextDecoderStream()).getReader();
      pulse.className = "pulse on";
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        text += value;
        const frames = text.split("\n\n");
        text = frames.pop();
        for (const frame of frames) take(frame);
      }
    } catch (error) {
      console.warn(error);
    }
    pulse.className = "pulse off";
    pulse.textContent = "the gateway does not answer; trying again";
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

function take(frame) {
  const name = /^event: (.*)$/m.exec(frame)?.[1];
  const data = JSON.parse(/^data: (.*)$/m.exec(frame)?.[1] ?? "null");
  if (name === "turn") keep([data]);
  if (name === "live") { state.live = data; pulse.textContent = `${data.length} live`; }
  if ((name === "turn" && ["live", "", "sessions", "usage"].includes(route()[0])) || ["live", ""].includes(route()[0])) soon();
}

let waiting = false;
function soon() {
  if (waiting) return;
  waiting = true;
  setTimeout(() => { waiting = false; draw(); }, 250);
}

const route = () => decodeURIComponent(location.hash.slice(1)).split("/");
const sessionOf = (turn) => turn.session ?? `(no session) ${turn.tenant}`;
const short = (text, size = 28) => (text && text.length > size ? `${text.slice(0, size - 1)}…` : text ?? "–");
const tag = (text) => element("span", { class: `tag ${text}` }, text);

// `kind`: `stack` has a row below another of its cells where the window is narrow, `even` has columns of one width.
function table(columns, rows, open, kind = null) {
  if (!rows.length) return element("div", { class: "card empty" }, "Nothing yet. Point a client here: see ", element("a", { href: "#connect" }, "Connect"), ".");
  const head = element("tr", {}, columns.map(([name, , kind]) => element("th", { class: kind ?? null, scope: "col" }, name)));
  const drawn = (row) => element("tr", open ? { class: "link", tabindex: 0, onclick: () => open(row), onkeydown: (event) => event.key === "Enter" && open(row) } : {}, columns.map(([name, cell, kind]) => element("td", { class: kind ?? null, "data-name": name || null }, cell(row))));
  let at = Math.min(reached, rows.length);
  const body = element("tbody", {}, rows.slice(0, at).map(drawn));
  if (rows.length > at) {
    // The rest is drawn when somebody comes near it.
    const end = element("tr", {}, element("td", { colspan: columns.length, class: "dim" }, `${count(rows.length - at)} more`));
    body.append(end);
    const watch = new IntersectionObserver((seen) => {
      if (!seen.some((one) => one.isIntersecting)) return;
      end.before(...rows.slice(at, (at += CHUNK)).map(drawn));
      reached = Math.max(reached, at);
      end.firstChild.textContent = `${count(Math.max(rows.length - at, 0))} more`;
      if (at >= rows.length) { watch.disconnect(); end.remove(); }
    }, { rootMargin: "800px" });
    watch.observe(end);
  }
  return element("div", { class: "card" }, element("table", { class: kind }, element("thead", {}, head), body));
}

const stat = (name, value) => element("div", { class: "stat" }, element("b", {}, value), element("span", {}, name));

function live() {
  const recent = state.turns.filter((turn) => turn.at > Date.now() / 1000 - 600);
  const prompt = recent.reduce((sum, turn) => sum + turn.prompt_tokens, 0);
  const cached = recent.reduce((sum, turn) => sum + turn.cached_tokens, 0);
  const lost = recent.reduce((sum, turn) => sum + turn.lost, 0);
  const firsts = recent.map((turn) => turn.first_token).filter((value) => value !== null).sort((a, b) => a - b);
  return [
    element("div", { class: "grid" }, stat("turns running", state.live.length), stat("turns in ten minutes", recent.length), stat("of the prompts were cached", prompt ? `${Math.round((100 * cached) / prompt)} %` : "–"), stat("tokens read again", count(lost)), stat("median to the first token", seconds(firsts[firsts.length >> 1]))),
    plots ? plots.firstTokens(state.turns) : null,
    element("h1", {}, "Running now"),
    state.live.length ? table([
      ["session", (turn) => element("a", { href: `#sessions/${encodeURIComponent(sessionOf(turn))}` }, short(sessionOf(turn)))],
      ["client", (turn) => short(turn.client, 24), "hide"],
      ["model", (turn) => turn.model, "hide"],
      ["stage", (turn) => WORDS[turn.stage] ?? turn.stage],
      ["", (turn) => spans(turn), "hide"],
      ["output", (turn) => count(turn.output_tokens), "num"],
      ["tok/s", (turn) => (turn.first_token !== null && turn.seconds > turn.first_token ? (turn.output_tokens / (turn.seconds - turn.first_token)).toFixed(1) : "–"), "num"],
      ["time", (turn) => seconds(turn.seconds), "num"],
      ["", (turn) => element("button", { onclick: async (event) => { event.stopPropagation(); await ask(`/admin/turns/${turn.turn_id}/cancel`, { method: "POST" }); } }, "Cancel")],
    ], state.live, null, "stack") : element("div", { class: "card empty" }, "No turn is running."),
    element("h1", {}, "Sessions", element("small", {}, "newest first")),
    sessions(12),
  ];
}

function spans(turn) {
  return element("div", { class: "lane", style: "min-width:180px" }, turn.spans.map((span) => element("i", { style: `left:${(100 * span.start) / turn.seconds}%;width:${(100 * (span.end - span.start)) / turn.seconds}%;background:var(--${span.kind})`, title: WORDS[span.kind] ?? span.kind })));
}

function grouped() {
  const groups = new Map();
  for (const turn of state.turns) {
    const name = sessionOf(turn);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(turn);
  }
  return [...groups.entries()].map(([name, turns]) => ({ name, turns, last: turns[0], prompt: turns.reduce((sum, turn) => sum + turn.prompt_tokens, 0), cached: turns.reduce((sum, turn) => sum + turn.cached_tokens, 0), output: turns.reduce((sum, turn) => sum + turn.output_tokens, 0), lost: turns.reduce((sum, turn) => sum + turn.lost, 0), broken: turns.filter((turn) => turn.lost).length }));
}

function sessions(most) {
  return table([
    ["session", (group) => element("span", { class: "mono", title: group.name }, short(group.name, 40))],
    ["client", (group) => short(group.last.client, 26), "hide"],
    ["model", (group) => group.last.model, "hide"],
    ["turns", (group) => group.turns.length, "num"],
    ["cached / again / new / output", (group) => tokenBar({ prompt_tokens: group.prompt, cached_tokens: group.cached, lost: group.lost, output_tokens: group.output })],
    ["prefix", (group) => (group.broken ? element("span", { class: "tag broken" }, `${group.broken} broken`) : tag(group.turns.some((turn) => turn.prefix.startsWith("held")) ? "held" : group.last.prefix.split(";")[0]))],
    ["last", (group) => when(group.last.at), "num hide"],
  ], grouped().slice(0, most), (group) => { location.hash = `sessions/${encodeURIComponent(group.name)}`; });
}

const gone = (kind, name, said) => [element("h1", {}, `${kind} `, element("span", { class: "mono", title: name }, short(name, 60))), element("div", { class: "card empty" }, said, " ", element("a", { href: "#sessions" }, "All sessions"))];

// What the store keeps beyond the last turns.
function older() {
  if (!state.older) return null;
  const button = element("button", { onclick: async () => { button.disabled = true; state.older = await asked(`&older=${encodeURIComponent(state.older)}`); draw(); } }, "Older turns");
  return element("p", { class: "older" }, button, element("span", { class: "dim" }, `${count(state.turns.length)} turns are shown`));
}

async function session(name) {
  if (state.older && !whole.has(name)) {
    whole.add(name);
    await asked(`&session=${encodeURIComponent(name)}`);
  }
  const turns = state.turns.filter((turn) => sessionOf(turn) === name);
  if (!turns.length) return gone("Session", name, "No turn of this session is remembered.");
  const children = new Set(state.turns.filter((turn) => turn.parent && turn.parent === name).map(sessionOf));
  children.delete(name);
  return [
    element("h1", {}, element("span", { class: "mono", title: name }, short(name, 60)), element("small", {}, `${count(turns.length)} turn${turns.length === 1 ? "" : "s"}, ${short(turns[0].client, 40)}`)),
    children.size ? element("p", {}, "Sub-agents: ", [...children].map((child) => [element("a", { href: `#sessions/${encodeURIComponent(child)}` }, short(child)), " "])) : null,
    element("div", { class: "card" }, timeline(turns, (turn) => { location.hash = `turns/${turn.turn_id}`; })),
  ];
}

async function turn(id) {
  if (!embedded && !state.known.has(id)) await asked(`&turn=${encodeURIComponent(id)}`);
  const found = state.turns.find((one) => one.turn_id === id);
  if (found && !embedded && found.compared && !state.known.has(found.compared)) await asked(`&turn=${encodeURIComponent(found.compared)}`);
  if (!found) return gone("Turn", id, "This turn is not remembered, or not any more.");
  return turnPage(found, state.turns.find((one) => one.turn_id === found.compared), await payload(id), sessionOf);
}

async function payload(id) {
  if (embedded) return embedded.payloads[id];
  if (!payloads.has(id)) {
    const answer = await fetch(`${BASE}/admin/turns/${id}/payload`, { headers: headers() });
    if (!answer.ok) return null;
    payloads.set(id, await answer.json());
    if (payloads.size > 20) payloads.delete(payloads.keys().next().value);
  }
  return payloads.get(id);
}

async function usage() {
  const by = (key) => {
    const groups = new Map();
    for (const turn of state.turns) {
      const name = turn[key] ?? "–";
      const group = groups.get(name) ?? { name, turns: 0, prompt: 0, cached: 0, output: 0, lost: 0 };
      group.turns += 1; group.prompt += turn.prompt_tokens; group.cached += turn.cached_tokens; group.output += turn.output_tokens; group.lost += turn.lost;
      groups.set(name, group);
    }
    return [...groups.values()].sort((a, b) => b.prompt + b.output - a.prompt - a.output);
  };
  const columns = [["", (row) => short(row.name, 60)], ["turns", (row) => count(row.turns), "num"], ["prompt", (row) => count(row.prompt), "num"], ["cached", (row) => count(row.cached), "num"], ["output", (row) => count(row.output), "num"], ["read again", (row) => count(row.lost), "num"]];
  const kept = embedded ? null : await (await ask("/admin/usage?days=31")).json();
  const days = kept?.days?.length ? [element("h2", {}, "By key and day"), table(Object.keys(kept.days[0]).map((name) => [name.replaceAll("_", " "), (row) => (typeof row[name] === "number" ? count(row[name]) : row[name] ?? "–"), typeof kept.days[0][name] === "number" ? "num" : undefined]), kept.days.slice(0, 200), null, "stack even")] : [];
  return [element("h1", {}, "Usage", element("small", {}, state.turns.length ? `of the last ${count(state.turns.length)} turns` : "")), plots ? plots.tokensOverTime(state.turns) : null, ...days, ...(state.turns.length ? [["tenant", "By tenant"], ["model", "By model"], ["client", "By client and version"]] : [["tenant", "By tenant, model, client and version"]]).flatMap(([key, title]) => [element("h2", {}, title), table(columns, by(key), null, "stack even")])];
}

async function workers() {
  const rows = await (await ask("/admin/workers")).json();
  const routed = (name) => state.turns.filter((turn) => turn.worker === name);
  const why = (name) => { const counts = {}; for (const turn of routed(name)) counts[turn.route] = (counts[turn.route] ?? 0) + 1; return Object.entries(counts).map(([reason, size]) => `${reason} ${size}`).join(", ") || "–"; };
  const decided = state.turns.filter((turn) => turn.worker).slice(0, 50);
  return [
    element("h1", {}, "Workers"),
    table([["model", (row) => row.model], ["worker", (row) => element("span", { class: "mono" }, row.worker)], ["state", (row) => tag(row.state)], ["running", (row) => row.active, "num"], ["reading", (row) => `${count(row.prefilling)} tok`, "num"], ["holds", (row) => `${row.publishes_cache ? "" : "about "}${count(row.resident)} tok`, "num"], ["engine", (row) => [row.engine, row.version].filter(Boolean).join(" "), "hide"], ["window", (row) => (row.window ? count(row.window) : "–"), "num hide"], ["turns", (row) => count(routed(row.worker).length), "num"], ["sent there by", (row) => why(row.worker)]], rows, null, "stack"),
    element("h2", {}, "Last decisions", element("small", {}, "what a worker was believed to hold of the prompt, and what it said it held")),
    table([["time", (turn) => when(turn.at - turn.seconds)], ["session", (turn) => element("a", { href: `#turns/${turn.turn_id}` }, short(sessionOf(turn)))], ["worker", (turn) => element("span", { class: "mono" }, turn.worker)], ["because", (turn) => ROUTES[turn.route] ?? turn.route], ["queued", (turn) => seconds(turn.queued), "num hide"], ["believed", (turn) => (turn.predicted === null ? "–" : count(turn.predicted)), "num"], ["reported", (turn) => count(turn.cached_tokens), "num"], ["of", (turn) => count(turn.prompt_tokens), "num hide"]], decided, null, "stack"),
  ];
}

function connect() {
  const base = BASE;
  const key = secret() ? "YOUR_KEY" : "any";
  const clients = [
    ["Claude Code", "The first line also sets the model, its window and the key.", "turnwire launch claude", `ANTHROPIC_BASE_URL=${base} ANTHROPIC_AUTH_TOKEN=${key} claude`],
    ["Codex", "The first line also gives Codex this model's window and tools.", "turnwire launch codex", `codex -c model_provider=turnwire -c 'model_providers.turnwire={name="Turnwire",base_url="${base}/v1",wire_api="responses"}'`],
    ["opencode, pi, Qwen Code, OpenClaw", "", "turnwire launch opencode", "turnwire launch pi", "turnwire launch qwen", "turnwire launch openclaw"],
    ["OpenAI SDK", "Any program that reads these two variables, Open WebUI and LibreChat among them.", `export OPENAI_BASE_URL=${base}/v1 OPENAI_API_KEY=${key}`],
    ["Anthropic SDK", "", `export ANTHROPIC_BASE_URL=${base} ANTHROPIC_API_KEY=${key}`],
    ["A terminal", "", "turnwire chat", `curl -sN ${base}/v1/messages -H 'content-type: application/json'${secret() ? " -H 'x-api-key: YOUR_KEY'" : ""} -d '{"model":"default","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"Hello"}]}'`],
  ];
  const copy = (line) => element("button", { onclick: async (event) => { await navigator.clipboard.writeText(line); event.target.textContent = "Copied"; setTimeout(() => { event.target.textContent = "Copy"; }, 1500); } }, "Copy");
  return [element("h1", {}, "Connect", element("small", {}, base)), element("div", { class: "cards" }, clients.map(([name, said, ...lines]) => element("section", { class: "card" }, element("h2", {}, name), said ? element("p", { class: "dim" }, said) : null, lines.map((line) => element("pre", {}, element("code", {}, line), copy(line))))))];
}

// A value as people write it: sizes in their unit, nothing as a dash.
function written(value) {
  if (value === null || value === "" || (Array.isArray(value) && !value.length) || (typeof value === "object" && !Array.isArray(value) && !Object.keys(value).length)) return element("span", { class: "dim" }, "–");
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    const unit = [[30, "GiB"], [20, "MiB"], [10, "KiB"]].find(([bits]) => value >= 2 ** bits && value % 2 ** bits === 0);
    return unit && value > 4096 ? `${count(value / 2 ** unit[0])} ${unit[1]}` : count(value);
  }
  if (Array.isArray(value) && value.every((one) => typeof one === "string")) return value.join(", ");
  return typeof value === "string" ? value : element("pre", {}, JSON.stringify(value, null, 2));
}

async function settings() {
  const rows = await (await ask("/admin/settings?described=true")).json();
  const columns = [["setting", (row) => [element("code", {}, row.name), element("small", {}, row.description)]], ["value", (row) => element("span", { class: "mono" }, written(row.value))]];
  const part = (title, said, chosen) => (chosen.length ? [element("h2", {}, title, element("small", {}, said)), table(columns, chosen, null, "settings")] : []);
  return [element("h1", {}, "Settings in effect"), ...part("Chosen", "other than the default", rows.filter((row) => row.chosen)), ...part("Defaults", "", rows.filter((row) => !row.chosen))];
}

const VIEWS = { live, playground: async () => [(await import("./playground.js")).playground(secret)], sessions: (name) => (name ? session(name) : [element("h1", {}, "Sessions"), sessions(KEPT), older()]), turns: turn, workers, usage, connect, settings };

let shown = "";
async function draw() {
  const [name, ...rest] = route();
  const chosen = VIEWS[name] ? name : embedded ? "sessions" : "live";
  if (chosen === "playground" && shown === location.hash) return;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#${chosen}`) { link.setAttribute("aria-current", "page"); if (shown !== location.hash) link.scrollIntoView({ block: "nearest", inline: "center" }); }
    else link.removeAttribute("aria-current");
  }
  const hash = location.hash;
  const drawn = await VIEWS[chosen](rest.join("/"));
  if (hash !== location.hash) return;
  const at = window.scrollY;
  shown = hash;
  document.body.dataset.view = chosen;
  view.replaceChildren(...drawn.flat(Infinity).filter((part) => part !== null && part !== undefined && part !== false));
  window.scrollTo(0, at);
}

// The next or the one before of what can be opened on this page.
function step(by) {
  const rows = [...view.querySelectorAll("tr.link, .turn[role=button]")];
  const now = rows.indexOf(document.activeElement);
  rows[Math.min(Math.max(now + by, 0), rows.length - 1)]?.focus();
}

const ORDER = ["live", "sessions", "playground", "workers", "usage", "connect", "settings"];
window.addEventListener("hashchange", () => { reached = CHUNK; draw(); view.focus(); window.scrollTo(0, 0); });
window.addEventListener("keydown", (event) => {
  if (event.target.matches("input, textarea, select, dialog *") || event.metaKey || event.ctrlKey || event.altKey) return;
  if (!embedded && event.key >= "1" && event.key <= "7") location.hash = ORDER[Number(event.key) - 1];
  if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  if (event.key === "Escape" && !event.defaultPrevented) history.back();
});
if (embedded) {
  keep(embedded.turns);
  pulse.textContent = `a capture of ${new Date(embedded.head.started * 1000).toLocaleString()}`;
  for (const link of document.querySelectorAll("nav a")) if (!["#sessions", "#usage"].includes(link.getAttribute("href"))) link.remove();
  draw();
} else {
  import("./charts.js").then((made) => { plots = made; draw(); });
  draw();
  follow();
}
