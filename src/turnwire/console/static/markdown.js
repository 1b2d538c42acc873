// Markdown as it streams: only the last block is ever drawn again, so nothing that was read moves or flickers.
import { element } from "./timeline.js";

const INLINE = /(`+)([\s\S]*?)(?:\1|$)|\*\*([\s\S]+?)(?:\*\*|$)|(?<![\w*])[*_](?=\S)([\s\S]+?)(?:[*_](?!\w)|$)|~~([\s\S]+?)(?:~~|$)|\[([^\]\n]*)\]\((\S*?)(?:\)|$)/g;

// Text with emphasis, code and links; what is still open is shown as if it were closed.
export function inline(text) {
  const made = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    if (!found[0]) continue;
    if (found.index > at) made.push(text.slice(at, found.index));
    at = found.index + found[0].length;
    if (found[1]) made.push(element("code", {}, found[2]));
    else if (found[3] !== undefined) made.push(element("strong", {}, inline(found[3])));
    else if (found[4] !== undefined) made.push(element("em", {}, inline(found[4])));
    else if (found[5] !== undefined) made.push(element("s", {}, inline(found[5])));
    else if (/^https?:/.test(found[7])) made.push(element("a", { href: found[7], target: "_blank", rel: "noreferrer noopener" }, found[6]));
    else made.push(found[6]);
  }
  if (at < text.length) made.push(text.slice(at));
  return made;
}

// The blocks of a text: fences, headings, lists, quotes, tables and paragraphs.
export function blocks(text) {
  const made = [];
  let open = null;
  const close = () => { if (open) made.push(open); open = null; };
  for (const line of text.split("\n")) {
    const fence = /^\s*(```|~~~)(.*)$/.exec(line);
    if (open?.kind === "code") {
      if (fence && fence[1] === open.fence && !fence[2].trim()) close();
      else open.lines.push(line);
      continue;
    }
    const kind = fence ? "code" : /^#{1,6}\s/.test(line) ? "heading" : /^\s*(?:[-*+]|\d+[.)])\s/.test(line) ? "list" : /^\s*>/.test(line) ? "quote" : /^\s*\|/.test(line) ? "table" : /^\s*(?:---+|\*\*\*+)\s*$/.test(line) ? "rule" : line.trim() ? "paragraph" : "";
    if (kind === "code") { close(); open = { kind, fence: fence[1], language: fence[2].trim(), lines: [] }; continue; }
    if (!kind) { if (open?.kind === "list") open.lines.push(""); else close(); continue; }
    if (open && (open.kind === kind && kind !== "heading" && kind !== "rule" || (open.kind === "list" && kind === "paragraph" && /^\s/.test(line)))) open.lines.push(line);
    else { close(); open = { kind, lines: [line] }; }
  }
  close();
  return made;
}

function drawn(block) {
  const text = block.lines.join("\n");
  switch (block.kind) {
    case "code": return element("pre", {}, element("code", { "data-language": block.language || null }, text));
    case "heading": { const level = /^#+/.exec(text)[0].length; return element(`h${Math.min(level + 2, 6)}`, {}, inline(text.slice(level).trim())); }
    case "rule": return element("hr");
    case "quote": return element("blockquote", {}, inline(block.lines.map((line) => line.replace(/^\s*>\s?/, "")).join("\n")));
    case "list": return list(block.lines);
    case "table": return table(block.lines);
    default: return element("p", {}, inline(text));
  }
}

function list(lines) {
  const items = [];
  for (const line of lines) {
    const found = /^(\s*)([-*+]|\d+[.)])\s+(.*)$/.exec(line);
    if (found) items.push({ depth: found[1].length >> 1, ordered: /\d/.test(found[2]), text: found[3] });
    else if (items.length && line.trim()) items.at(-1).text += `\n${line.trim()}`;
  }
  const root = element(items[0]?.ordered ? "ol" : "ul");
  const stack = [[0, root]];
  for (const item of items) {
    while (stack.length > 1 && stack.at(-1)[0] > item.depth) stack.pop();
    if (item.depth > stack.at(-1)[0] && stack.at(-1)[1].lastChild) {
      const inner = element(item.ordered ? "ol" : "ul");
      stack.at(-1)[1].lastChild.append(inner);
      stack.push([item.depth, inner]);
    }
    stack.at(-1)[1].append(element("li", {}, inline(item.text)));
  }
  return root;
}

function table(lines) {
  const rows = lines.map((line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim()));
  const [head, ...rest] = rows;
  const body = rest.filter((row) => !row.every((cell) => /^:?-*:?$/.test(cell)));
  return element("div", { class: "wide" }, element("table", {}, element("thead", {}, element("tr", {}, head.map((cell) => element("th", {}, inline(cell))))), element("tbody", {}, body.map((row) => element("tr", {}, row.map((cell) => element("td", {}, inline(cell))))))));
}

// A place that markdown is streamed into. Blocks that are over keep their elements; frames draw at most once.
export class Stream {
  constructor(place) {
    this.place = place;
    this.text = "";
    this.keys = [];
    this.waiting = false;
  }

  add(text) {
    this.text += text;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    const found = blocks(this.text);
    found.forEach((block, number) => {
      const key = `${block.kind} ${block.lines.join("\n")}`;
      if (this.keys[number] === key) return;
      const old = this.place.children[number];
      if (old && block.kind === "code" && this.keys[number]?.startsWith("code ")) {
        // A growing listing keeps its element, its selection and its scroll position.
        const code = old.firstChild;
        const text = block.lines.join("\n");
        if (text.startsWith(code.textContent)) code.append(text.slice(code.textContent.length));
        else code.textContent = text;
      } else if (old) old.replaceWith(drawn(block));
      else this.place.append(drawn(block));
      this.keys[number] = key;
    });
    while (this.place.children.length > found.length) this.place.lastChild.remove();
    this.keys.length = found.length;
  }
}
