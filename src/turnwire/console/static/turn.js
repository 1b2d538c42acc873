// One turn: how its prompt relates to the one before, and, where a capture holds it, every token of it.
import { count, element, legend, remark, seconds, timeline, tokenBar } from "./timeline.js";

const SECTIONS = { system: "system", tools: "tool_call", message: "new", turn: "reasoning", frame: "queue", generation: "text", more: "queue", output: "output" };
const SAID = { system: "system text", tools: "tools", message: "message", turn: "the model's turn", frame: "template", generation: "header", more: "the middle of the conversation", output: "output" };
const SHOWN = 400;

// Two prompts as bars on one scale, with the place where they part.
function prefixBars(turn, before) {
  const earlier = before ? [...before.layout, ["output", before.output_tokens]] : [];
  const total = Math.max(turn.prompt_tokens, earlier.reduce((sum, [, size]) => sum + size, 0), 1);
  const broken = turn.lost > 0;
  const bar = (parts, lost) => {
    let at = 0;
    return element("div", { class: "sections" }, parts.flatMap(([kind, size]) => {
      const start = at;
      at += size;
      const pieces = broken && start < turn.shared && at > turn.shared ? [[turn.shared - start, false], [at - turn.shared, true]] : [[size, broken && start >= turn.shared]];
      return pieces.map(([part, parted]) => element("i", { class: parted ? lost : null, style: `width:${(100 * part) / total}%;--c:var(--${SECTIONS[kind] ?? "queue"})`, title: `${SAID[kind] ?? kind}: ${count(size)} tokens${parted ? ", read again" : ""}` }, part / total > 0.09 ? SAID[kind] ?? kind : ""));
    }));
  };
  return element("div", { class: "compare" },
    before ? [element("span", {}, "before"), bar(earlier, "gone")] : null,
    element("span", {}, before ? "now" : "prompt"), bar(turn.layout.length ? turn.layout : [["message", turn.prompt_tokens]], "again"),
    broken ? element("div", { class: "cut", style: `--at:${(100 * turn.shared) / total}%` }, element("b", {}, `token ${count(turn.shared)}`)) : null);
}

// What became of the prefix, in a sentence that tells a break from an eviction.
function verdict(turn) {
  const state = turn.prefix.split(";")[0];
  if (turn.lost) return ["broken", `The prefix broke after ${count(turn.shared)} tokens: ${count(turn.lost)} were read again.`];
  if (turn.cause === "evicted" || /evicted/.test(turn.story)) return ["evicted", `The prompt kept its prefix of ${count(turn.shared)} tokens, but the engine had only ${count(turn.cached_tokens)} of them left: they were evicted, not changed.`];
  if (state === "held") return ["held", `The prompt starts with all ${count(turn.shared)} tokens of the turn before, and the engine found ${count(turn.cached_tokens)} of them cached.`];
  return [state, turn.story];
}

function difference(found) {
  const word = (text) => text.replaceAll("\n", "⏎\n");
  const tokens = (pieces, kind) => pieces.map((piece, place) => element("span", { class: `tok ${kind}${place === 0 && kind !== "same" ? " first" : ""}` }, word(piece)));
  return element("div", { class: "card diff" },
    element("div", { class: "was" }, element("small", {}, "before"), element("code", {}, tokens(found.same, "same"), tokens(found.before, "gone"))),
    element("div", { class: "is" }, element("small", {}, "now"), element("code", {}, tokens(found.same, "same"), tokens(found.now, "again"))));
}

function promptTokens(payload, turn) {
  const { pieces, from } = payload.prompt;
  const parts = payload.sections.length ? payload.sections : [["message", 0, 0, payload.prompt.size]];
  const shown = [];
  for (const [kind, index, start, end] of parts) {
    if (end <= from || end === start) continue;
    const first = Math.max(start, from);
    const box = element("div", { class: "toks" });
    const fill = (limit) => box.replaceChildren(...pieces.slice(first - from, Math.min(end, first + limit) - from).map((piece, place) => element("span", { class: `tok${first + place < turn.shared ? "" : turn.lost && first + place < turn.shared + turn.lost ? " again" : " new"}`, title: `token ${count(first + place)}` }, piece)));
    fill(SHOWN);
    const rest = end - first - SHOWN;
    shown.push(element("div", { class: "section", style: `--c:var(--${SECTIONS[kind] ?? "queue"})` }, element("small", {}, `${SAID[kind] ?? kind}${kind === "message" || kind === "turn" ? ` ${index}` : ""} · ${count(end - start)} tokens`), box,
      rest > 0 ? element("button", { onclick: (event) => { fill(Infinity); event.target.remove(); } }, `show ${count(rest)} more`) : null));
  }
  const left = payload.prompt.cut ? element("p", { class: "dim" }, `The first ${count(payload.prompt.cut)} tokens are left out here.`) : null;
  return element("div", { class: "card scroll" }, left, shown);
}

function block(one) {
  if (one.kind === "tool_call") return element("div", { class: "block", style: "--c:var(--tool_call)" }, element("small", {}, `call ${one.name}`), element("code", {}, JSON.stringify(one.arguments, null, 2)));
  return element("div", { class: "block", style: `--c:var(--${one.kind})` }, element("small", {}, one.kind === "reasoning" ? "thought" : one.kind), element("div", { class: "said" }, one.text));
}

function captured(turn, payload) {
  if (!payload) return [element("p", { class: "dim" }, "Start the gateway with ", element("code", {}, "--capture FOLDER"), " to see the prompt token by token, the raw output beside what it was parsed into, and every byte that was sent.")];
  const raw = payload.output.pieces.length ? payload.output.pieces.map((piece, place) => element("span", { class: `tok${place % 2 ? " odd" : ""}` }, piece)) : payload.output.text;
  return [
    element("h2", {}, "Output", element("small", {}, `${count(turn.output_tokens)} tokens in ${count(payload.output.batches.length)} batches, raw and parsed`)),
    element("div", { class: "beside" }, element("div", { class: "card scroll toks" }, raw), element("div", { class: "card scroll" }, payload.blocks.length ? payload.blocks.map(block) : "Nothing was parsed.")),
    element("h2", {}, "Prompt", element("small", {}, `${count(payload.prompt.size)} tokens as the model read them`)),
    legend([["shared with the turn before", "line"], ["read again", "reread"], ["new", "new"]]),
    promptTokens(payload, turn),
    element("details", { class: "card" }, element("summary", {}, `Sent to the client in ${count(payload.wire.length)} write${payload.wire.length === 1 ? "" : "s"}`), element("div", { class: "wire scroll" }, payload.wire.map(([at, text]) => [element("time", {}, seconds(at)), element("code", {}, text)]))),
    element("details", { class: "card" }, element("summary", {}, "The request"), element("pre", { class: "scroll" }, pretty(payload.request))),
    payload.redacted ? element("p", { class: "dim" }, `${count(payload.redacted)} secrets were replaced.`) : null,
  ];
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

export function turnPage(turn, before, payload, sessionOf) {
  const fact = (name, value) => (value === null || value === undefined || value === "" ? [] : [element("dt", {}, name), element("dd", {}, value)]);
  const [state, said] = verdict(turn);
  return [
    element("h1", {}, "Turn ", element("span", { class: "mono" }, turn.turn_id), element("small", {}, new Date(turn.at * 1000).toLocaleString())),
    element("div", { class: "card" }, timeline([turn], () => {})),
    element("h2", {}, "Prefix", element("small", {}, turn.compared ? ["compared with turn ", element("a", { class: "mono", href: `#turns/${turn.compared}` }, turn.compared)] : "")),
    element("div", { class: `card verdict ${state}` }, element("p", {}, element("span", { class: `tag ${state}` }, state), " ", said),
      turn.lost ? element("p", { class: "why" }, element("b", {}, "Why "), turn.story.replace(/ What helps:.*$/, "").replace(/^.*? of [\d,]+ in ([^:]+): /, (_, where) => `${where}: `), turn.fix ? [element("br"), element("b", {}, "What helps "), turn.fix, "."] : null) : null,
      prefixBars(turn, before),
      legend(["system", "tools", "message", "turn", "generation", "output"].map((kind) => [SAID[kind], SECTIONS[kind]]))),
    payload?.difference ? difference(payload.difference) : null,
    ...captured(turn, payload),
    element("h2", {}, "Facts"),
    element("div", { class: "card" }, tokenBar(turn), element("dl", { style: "margin-top:12px" },
      fact("session", element("a", { href: `#sessions/${encodeURIComponent(sessionOf(turn))}` }, sessionOf(turn))), fact("client", turn.client), fact("class", turn.turn_class), fact("API", turn.api), fact("model", turn.model), fact("tenant", turn.tenant), fact("worker", turn.worker && `${turn.worker} (${turn.route})`), fact("believed to be cached there", turn.predicted === null ? "" : `${count(turn.predicted)} tokens`), fact("reported by the engine", `${count(turn.cached_tokens)} tokens cached`), fact("queued", turn.queued ? seconds(turn.queued) : ""), fact("first token", seconds(turn.first_token)), fact("whole turn", seconds(turn.seconds)), fact("tokens", `${count(turn.prompt_tokens)} prompt, ${count(turn.output_tokens)} output (${count(turn.reasoning_tokens)} thinking)`), fact("calls", turn.calls || ""), fact("ended", turn.finish), fact("failure", turn.failure), fact("why so long", remark(turn)), fact("notes", turn.notes.join(", ")))),
  ];
}
