// The playground: a conversation with the served model over a WebSocket that carries the agent's own events.
import { count, element, seconds } from "./timeline.js";
import { Stream } from "./markdown.js";

let page = null;
// What the end of an answer is called where it is not the usual one.
const ENDS = { cancelled: "cancelled · ", refused: "the rest is not supported by what was found · ", limit: "step limit reached · " };

export function playground(secret) {
  page ??= new Playground(secret);
  return page.root;
}

class Playground {
  constructor(secret) {
    this.secret = secret;
    this.images = [];
    this.running = false;
    this.log = element("div", { class: "talk", role: "log", "aria-live": "polite", tabindex: 0 });
    this.status = element("span", { class: "dim", role: "status" }, "connecting");
    this.model = element("select", { "aria-label": "Model", onchange: () => this.say({ type: "settings", model: this.model.value }) });
    this.approve = element("select", { "aria-label": "Tools", onchange: () => this.say({ type: "settings", tools: this.approve.value }) }, element("option", { value: "ask" }, "ask before tools"), element("option", { value: "always" }, "run tools"), element("option", { value: "off" }, "no tools"));
    this.input = element("textarea", { rows: 2, placeholder: "Ask something. Enter sends, Shift+Enter breaks the line, Esc cancels.", "aria-label": "Message", onkeydown: (event) => this.key(event), onpaste: (event) => this.take(event.clipboardData.files) });
    this.previews = element("div", { class: "previews" });
    this.send = element("button", { class: "primary", onclick: () => (this.running ? this.cancel() : this.ask()) }, "Send");
    this.facts = element("textarea", { rows: 4, hidden: true, placeholder: "Facts, one on each line. The agent searches them, and what it says is checked against what it found, paragraph by paragraph.", "aria-label": "Facts", onchange: () => this.say({ type: "settings", facts: this.known() }) });
    const file = element("input", { type: "file", accept: "image/*", multiple: true, hidden: true, onchange: (event) => this.take(event.target.files) });
    this.root = element("div", { class: "playground" }, this.log, element("div", { class: "composer card" }, this.previews, this.facts, this.input, element("div", { class: "tools" }, this.model, this.approve, file, element("button", { onclick: () => file.click() }, "Image"), element("button", { "aria-expanded": "false", onclick: (event) => { this.facts.hidden = !this.facts.hidden; event.target.setAttribute("aria-expanded", String(!this.facts.hidden)); (this.facts.hidden ? this.input : this.facts).focus(); } }, "Facts"), element("button", { onclick: () => this.clear() }, "New"), this.status, this.send)));
    this.root.addEventListener("keydown", (event) => { if (event.key === "Escape" && this.running) { event.stopPropagation(); this.cancel(); } });
    this.greet();
    this.connect();
  }

  greet() {
    this.log.replaceChildren(element("div", { class: "empty" }, "The model that is served here, with two small tools: a clock and a calculator."));
  }

  connect() {
    const address = new URL("chat", import.meta.url).href.replace(/^http/, "ws");
    this.socket = new WebSocket(address);
    this.socket.onopen = () => this.say({ type: "hello", key: this.secret(), tools: this.approve.value, facts: this.known() });
    this.socket.onmessage = (message) => this.hear(JSON.parse(message.data));
    this.socket.onclose = () => { this.end("disconnected"); setTimeout(() => this.connect(), 2000); };
  }

  known() {
    return this.facts.value.split("\n").filter((line) => line.trim());
  }

  say(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); if (!this.running) this.ask(); }
  }

  take(files) {
    for (const file of files ?? []) {
      if (!file.type.startsWith("image/")) continue;
      const reader = new FileReader();
      reader.onload = () => { this.images.push(reader.result); this.previews.append(element("img", { src: reader.result, alt: file.name })); };
      reader.readAsDataURL(file);
    }
  }

  ask() {
    const text = this.input.value.trim();
    if (!text && !this.images.length) return;
    this.say({ type: "ask", text, images: this.images });
    this.show("user", element("div", { class: "said" }, text), this.images.map((source) => element("img", { src: source, alt: "" })));
    this.input.value = "";
    this.images = [];
    this.previews.replaceChildren();
    this.begin();
  }

  begin() {
    this.running = true;
    this.began = performance.now();
    this.send.textContent = "Stop";
    this.status.textContent = "reading";
    this.answer = this.show("assistant");
    this.part = null;
  }

  show(role, ...parts) {
    this.log.querySelector(".empty")?.remove();
    const made = element("article", { class: role }, parts);
    this.log.append(made);
    this.follow();
    return made;
  }

  follow() {
    const near = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 160;
    if (near) this.log.scrollTop = this.log.scrollHeight;
  }

  cancel() {
    this.status.textContent = "stopping";
    this.say({ type: "cancel" });
  }

  clear() {
    this.say({ type: "clear" });
    this.greet();
    this.input.focus();
  }

  // The stream that more of a kind belongs to; thoughts are folded and tell how long they took.
  stream(kind) {
    if (this.part?.kind === kind) return this.part.stream;
    this.fold();
    const place = element("div", { class: "markdown" });
    const thought = kind === "reasoning" ? element("details", { class: "thought" }, element("summary", {}, "thinking…"), place) : null;
    this.answer.append(thought ?? place);
    this.part = { kind, thought, since: performance.now(), stream: new Stream(place) };
    this.status.textContent = kind === "reasoning" ? "thinking" : "writing";
    return this.part.stream;
  }

  fold() {
    if (this.part?.thought) this.part.thought.firstChild.textContent = `thought for ${seconds((performance.now() - this.part.since) / 1000)}`;
    this.part = null;
  }

  hear(event) {
    const near = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 160;
    switch (event.type) {
      case "ready":
        this.model.replaceChildren(...event.models.map((name) => element("option", { value: name }, name)));
        this.status.textContent = "ready";
        break;
      case "text_delta": this.stream("text").add(event.text); break;
      case "reasoning_delta": this.stream("reasoning").add(event.text); break;
      case "approval": this.question(event); break;
      case "tool_started": this.tool(event.call_id, event.name, event.arguments, "running"); break;
      case "tool_finished": this.tool(event.call_id, event.name, null, `${event.failed ? "failed" : "done"} in ${seconds(event.seconds)}`, event.content, event.failed); break;
      case "tool_refused": this.tool(event.call_id, event.name, event.arguments, "not allowed", null, true); break;
      case "failed": this.answer ??= this.show("assistant"); this.answer.append(element("p", { class: "bad" }, event.message)); this.end("failed"); break;
      case "cancelled": this.end("cancelled", event.tokens); break;
      case "memory_trimmed": this.answer.append(element("p", { class: "dim" }, `The oldest ${event.turns === 1 ? "turn" : `${event.turns} turns`} left the conversation, which is full.`)); break;
      case "refused": this.end("refused", event.tokens); break;
      case "step_limit_reached": this.end("limit", event.tokens); break;
      case "answered": this.end("ready", event.tokens); break;
    }
    if (near) requestAnimationFrame(() => { this.log.scrollTop = this.log.scrollHeight; });
  }

  tool(id, name, given, state, content, bad) {
    this.fold();
    let card = this.answer.querySelector(`[data-call="${CSS.escape(id)}"]`);
    if (!card) {
      card = element("details", { class: "toolcard", "data-call": id }, element("summary", {}, element("b", {}, name), " ", element("code", {}, given ?? ""), element("span", { class: "state" })));
      this.answer.append(card);
    }
    card.querySelector(".choices")?.remove();
    const said = card.querySelector(".state");
    said.textContent = state;
    said.className = `state${bad ? " bad" : ""}`;
    if (content) card.append(element("pre", {}, content));
    this.status.textContent = state === "running" ? `running ${name}` : "reading";
  }

  question(event) {
    this.tool(event.call_id, event.name, event.arguments, "may it run?");
    const card = this.answer.querySelector(`[data-call="${CSS.escape(event.call_id)}"]`);
    card.open = true;
    const choice = (answer, words) => element("button", { onclick: () => { card.querySelector(".choices").remove(); this.say({ type: "approve", call_id: event.call_id, answer }); this.input.focus(); } }, words);
    card.append(element("div", { class: "choices" }, choice("once", "Run"), choice("always", "Always run"), choice("no", "Refuse")));
    card.querySelector(".choices button").focus();
    this.status.textContent = "waiting for you";
  }

  end(state, tokens) {
    this.fold();
    this.running = false;
    this.send.textContent = "Send";
    this.status.textContent = state in ENDS ? "ready" : state;
    if (!this.answer) return;
    const took = `${seconds((performance.now() - this.began) / 1000)}`;
    const told = tokens ? `${count(tokens.prompt)} prompt, ${count(tokens.cached)} cached, ${count(tokens.output)} output` : "";
    for (const old of this.log.querySelectorAll(".again")) old.remove();
    const article = this.answer;
    const again = element("button", { class: "again", onclick: () => { article.remove(); this.say({ type: "retry" }); this.begin(); } }, "Retry");
    article.append(element("footer", {}, ENDS[state] ?? "", took, told ? ` · ${told}` : "", " ", again));
    this.answer = null;
    this.follow();
  }
}
