// A session as a timeline: one row per turn, lanes for its parts, a sentence for every long gap.
const KINDS = ["queue", "prefill", "reasoning", "text", "tool_call"];
export const WORDS = { queue: "queue", prefill: "reading", reasoning: "thinking", text: "text", tool_call: "call", more: "more parts" };

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const seconds = (value) => (value === null || value === undefined ? "–" : value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(value < 10 ? 2 : 1)} s`);
// The time of a moment (unix seconds), with its day where that is not today.
export function when(at) {
  const moment = new Date(at * 1000);
  const time = moment.toLocaleTimeString();
  return moment.toDateString() === new Date().toDateString() ? time : `${moment.toLocaleDateString(undefined, { month: "short", day: "numeric" })} ${time}`;
}
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
export const count = (value) => (value ?? 0).toLocaleString("en-US");

export function tokenBar(turn) {
  const cached = Math.min(turn.cached_tokens, turn.prompt_tokens);
  const reread = Math.min(turn.lost, turn.prompt_tokens - cached);
  const fresh = turn.prompt_tokens - cached - reread;
  const total = Math.max(turn.prompt_tokens + turn.output_tokens, 1);
  const part = (name, size, colour) => element("i", { style: `width:${(100 * size) / total}%;background:var(--${colour})`, title: `${name}: ${count(size)} tokens` });
  const label = `${count(cached)} cached, ${count(reread)} read again, ${count(fresh)} new, ${count(turn.output_tokens)} output`;
  return element("div", { class: "bar", role: "img", "aria-label": label, title: label }, part("cached", cached, "cached"), part("read again", reread, "reread"), part("new", fresh, "new"), part("output", turn.output_tokens, "output"));
}

export function legend(names) {
  return element("div", { class: "legend" }, names.map(([name, colour]) => element("span", { style: `--c:var(--${colour})` }, name)));
}

// Why a turn took the time it took, in a sentence; null where nothing is worth one.
export function remark(turn) {
  const words = [];
  if (turn.queued >= 1) words.push(`${seconds(turn.queued)} in the queue`);
  const read = (turn.first_token ?? turn.seconds) - turn.queued;
  if (read >= 1) {
    const uncached = turn.prompt_tokens - turn.cached_tokens;
    words.push(`${seconds(read)} until the first token: ${count(uncached)} of ${count(turn.prompt_tokens)} tokens were read${turn.lost ? " again" : ""}`);
  }
  if (turn.silence >= 1) words.push(`the engine was silent for ${seconds(turn.silence)}`);
  if (turn.failure) words.push(`failed: ${turn.failure}`);
  return words.length ? words.join("; ") : null;
}

export function timeline(turns, open) {
  const rows = [];
  const ordered = [...turns].sort((a, b) => a.at - a.seconds - (b.at - b.seconds));
  const longest = Math.max(...ordered.map((turn) => turn.seconds), 0.001);
  // Each agent waits for its own tools: a gap is between two turns of the same one.
  const last = new Map();
  for (const turn of ordered) {
    const began = turn.at - turn.seconds;
    const before = last.get(turn.agent ?? "");
    if (before && began - before.at >= 0.05) rows.push(gap(began - before.at, before, longest));
    rows.push(row(turn, longest, open));
    last.set(turn.agent ?? "", turn);
  }
  const parts = legend([...KINDS.map((kind) => [WORDS[kind], kind]), ["waiting for the client", "wait"]]);
  return element("div", {}, element("div", { class: "legends" }, parts, legend([["cached", "cached"], ["read again", "reread"], ["new", "new"], ["output", "output"]])), rows);
}

function gap(wait, before, longest) {
  const what = before.calls ? `${seconds(wait)} until the next request: the client ran ${before.calls} tool call${before.calls > 1 ? "s" : ""}` : `${seconds(wait)} until the next request`;
  const width = Math.min(100, (100 * wait) / longest);
  return element("div", { class: "turn", style: "cursor:default" }, element("span", {}), element("div", { class: "lane" }, element("i", { class: "wait", style: `left:0;width:${width}%`, title: what })), element("span", { class: "say" }, what));
}

// Whose turn it is, where it is not the main agent's.
function who(turn) {
  if (!turn.agent && turn.turn_class === "main") return null;
  return element("small", { class: "who", title: turn.agent ?? turn.turn_class }, turn.agent ? `sub-agent ${turn.agent.slice(0, 12)}` : turn.turn_class);
}

function row(turn, longest, open) {
  const lane = element("div", { class: "lane" }, turn.spans.map((span) => element("i", {
    style: `left:${(100 * span.start) / longest}%;width:${(100 * (span.end - span.start)) / longest}%;background:var(--${span.kind})`,
    title: `${WORDS[span.kind] ?? span.kind}${span.name ? ` ${span.name}` : ""}: ${seconds(span.end - span.start)}`,
  }, span.end - span.start > longest / 12 ? span.name || WORDS[span.kind] : "")));
  const said = remark(turn);
  return element("div", { class: "turn", tabindex: 0, role: "button", onclick: () => open(turn), onkeydown: (event) => event.key === "Enter" && open(turn) },
    element("span", {}, when(turn.at - turn.seconds), " ", element("span", { class: `tag ${turn.prefix.split(";")[0]}` }, turn.prefix.split(";")[0])),
    element("div", { class: "lanes" }, who(turn), lane),
    tokenBar(turn),
    said || turn.lost ? element("div", { class: "say" }, said, said && turn.lost ? ". " : "", turn.lost ? element("b", {}, sentence(turn.story)) : "") : null);
}
