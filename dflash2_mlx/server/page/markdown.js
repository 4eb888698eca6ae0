// Markdown to HTML, block by block. Knows the text alone; ./inline.js escapes it, ./highlight.js colours code.

import { escaped, inline } from "./inline.js";
import { highlighted } from "./highlight.js";

const FENCE = /^([ \t]*)(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const UNDERLINE = /^ {0,3}(={2,}|-{2,})[ \t]*$/; // of one character only, it may be a list that is being written
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*))?$/;
const COLUMNS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const TASK = /^\[([ xX])\][ \t]+/;

export const markdown = (text) => blocks(text).join("");

// The HTML of each block of `text`; each is one element.
export const blocks = (text) => parsed(text.replace(/\r\n?/g, "\n").split("\n"));

const KINDS = [fence, heading, rule, quote, list, table, indented]; // (lines, start, open) -> [html, end] or nothing
const DEEPEST = 40; // blocks inside each other; what is deeper is text
let depth = 0;

function parsed(lines) {
  if (depth === DEEPEST) return [`<p>${escaped(lines.join("\n"))}</p>`];
  depth++;
  const out = [];
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) out.push(`<p>${inline(paragraph.join("\n"))}</p>`);
    paragraph = [];
  };
  for (let n = 0; n < lines.length; ) {
    const line = lines[n], underline = paragraph.length && line.match(UNDERLINE);
    if (underline) {
      out.push(titled(underline[1][0] === "=" ? 1 : 2, paragraph.join("\n")));
      paragraph = [];
      n++;
      continue;
    }
    const made = line.trim() && first(KINDS, (kind) => kind(lines, n, paragraph.length > 0));
    if (made) flush();
    if (made) out.push(made[0]);
    else if (line.trim()) paragraph.push(line.trim());
    else flush();
    n = made ? made[1] : n + 1;
  }
  flush();
  depth--;
  return out;
}

function first(kinds, make) {
  for (const kind of kinds) {
    const made = make(kind);
    if (made) return made;
  }
  return null;
}

// Whether `line` begins a block that ends a paragraph.
const begins = (line) => [FENCE, HEADING, RULE, QUOTE].some((pattern) => pattern.test(line)) || Boolean(itemOf(line));

// `line` as the going on of a paragraph, which it cannot underline from outside.
const lazily = (line) => line.trim().replace(/^=/, "\\=");

function columns(line) {
  let count = 0;
  for (const character of line) {
    if (character === "\t") count += 4 - (count % 4);
    else if (character === " ") count++;
    else break;
  }
  return count;
}

// `line` without its first `count` columns of space.
function dedented(line, count) {
  let n = 0, column = 0;
  for (; column < count && " \t".includes(line[n] ?? "x"); n++) column += line[n] === "\t" ? 4 - (column % 4) : 1;
  return " ".repeat(Math.max(0, column - count)) + line.slice(n);
}

// Whether the code that `opening` began ends with `line`.
const closes = (opening, line) =>
  line.trim().length >= opening.length && line.trim().replaceAll(opening[0], "") === "";

function fence(lines, start) {
  const [, indent, opening, about] = lines[start].match(FENCE) ?? [];
  if (!opening || columns(indent) > 3) return null;
  let end = start + 1;
  while (end < lines.length && !closes(opening, lines[end])) end++;
  const inside = lines.slice(start + 1, end).map((line) => dedented(line, columns(indent)));
  return [figure(inside.join("\n"), about.trim().split(/[\s{]/)[0]), end + 1];
}

function indented(lines, start, open) {
  if (open || columns(lines[start]) < 4) return null;
  let end = start + 1;
  while (end < lines.length && (!lines[end].trim() || columns(lines[end]) >= 4)) end++;
  while (!lines[end - 1].trim()) end--;
  return [figure(lines.slice(start, end).map((line) => dedented(line, 4)).join("\n"), ""), end];
}

const figure = (code, language) =>
  `<figure><figcaption><span>${escaped(language) || "text"}</span><button type="button" data-copy>Copy</button>` +
  `</figcaption><pre tabindex="0"><code>${highlighted(code, language)}</code></pre></figure>`;

function heading(lines, start) {
  const [, marks, text = ""] = lines[start].match(HEADING) ?? [];
  return marks ? [titled(marks.length, text.replace(/(^|[ \t]+)#+[ \t]*$/, "").trim()), start + 1] : null;
}

// The page has headings of its own above those of an answer.
function titled(level, text) {
  const tag = `h${Math.min(level + 2, 6)}`;
  return `<${tag}>${inline(text)}</${tag}>`;
}

function rule(lines, start) {
  return RULE.test(lines[start]) ? ["<hr>", start + 1] : null;
}

function quote(lines, start) {
  if (!QUOTE.test(lines[start])) return null;
  const inside = [];
  let end = start;
  for (; end < lines.length; end++) {
    const line = lines[end], marked = QUOTE.test(line);
    const lazy = !marked && line.trim() && inside.at(-1).trim() && !begins(line) && !begins(inside.at(-1));
    if (!marked && !lazy) break;
    inside.push(marked ? line.replace(QUOTE, "") : lazily(line));
  }
  return [`<blockquote>${parsed(inside).join("")}</blockquote>`, end];
}

function itemOf(line) {
  const [whole, space, marker, gap = "", text = ""] = line.match(ITEM) ?? [];
  if (whole === undefined) return null;
  const indent = columns(space), wide = columns(gap) > 4; // then what follows is indented code
  const width = indent + marker.length + (wide || !text ? 1 : columns(gap));
  return { indent, width, marker, kind: marker.at(-1), text: wide ? dedented(gap + text, 1) : text };
}

function list(lines, start, open) {
  const head = itemOf(lines[start]);
  const number = head && parseInt(head.marker);
  if (!head || head.indent > 3 || (open && (!head.text || number > 1))) return null;
  const items = [];
  let end = start, loose = false;
  for (let item = head; item && item.kind === head.kind && item.indent <= 3; item = itemOf(lines[end] ?? "")) {
    if (RULE.test(lines[end])) break;
    const [body, after, gap] = itemBody(lines, end, item);
    end = after;
    items.push(body);
    loose ||= gap && itemOf(lines[end] ?? "")?.kind === head.kind;
  }
  const tag = number >= 0 ? "ol" : "ul";
  const attributes = (number >= 0 && number !== 1 ? ` start="${number}"` : "") + (loose ? ' class="loose"' : "");
  return [`<${tag}${attributes}>${items.map(itemHtml).join("")}</${tag}>`, end];
}

// The lines of an item without their indent, where the item ends, and whether blank lines follow it.
function itemBody(lines, start, item) {
  const body = [item.text];
  let end = start + 1, fenced = item.text.match(FENCE)?.[2];
  for (; end < lines.length; end++) {
    const line = lines[end], inner = itemOf(line), blank = !line.trim();
    const inside = columns(line) >= item.width || (inner && inner.indent >= item.indent + 2);
    const lazy = fenced || (!begins(line) && body.at(-1).trim() && !begins(body.at(-1).replace(ITEM, "")));
    if (!blank && !inside && !lazy) break;
    body.push(blank ? line.slice(item.width) : inside || fenced ? dedented(line, item.width) : lazily(line));
    if (!fenced) fenced = body.at(-1).match(FENCE)?.[2];
    else if (closes(fenced, line)) fenced = undefined;
  }
  const length = body.length;
  while (body.length > 1 && !body.at(-1).trim()) body.pop();
  return [body, end, body.length < length];
}

function itemHtml(lines) {
  const done = lines[0].match(TASK)?.[1];
  if (done === undefined) return `<li>${parsed(lines).join("")}</li>`;
  const box = `<input type="checkbox" disabled aria-label="done"${done === " " ? "" : " checked"}>`;
  return `<li class="task">${box}${parsed([lines[0].replace(TASK, ""), ...lines.slice(1)]).join("")}</li>`;
}

function table(lines, start) {
  const under = lines[start + 1] ?? "";
  if (!(lines[start] + under).includes("|") || !COLUMNS.test(under)) return null;
  const sides = cells(under).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "middle" : "right") : ""));
  const names = cells(lines[start], sides.length);
  if (names.length !== sides.length) return null;
  let end = start + 2;
  while (end < lines.length && lines[end].trim() && !begins(lines[end])) end++;
  const row = (texts, tag) => {
    const cell = (side, n) => `<${tag}${side && ` class="${side}"`}>${inline(texts[n] ?? "")}</${tag}>`;
    return `<tr>${sides.map(cell).join("")}</tr>`;
  };
  const rows = lines.slice(start + 2, end).map((line) => row(cells(line, sides.length), "td"));
  return [`<div class="wide" tabindex="0"><table>${row(names, "th")}${rows.join("")}</table></div>`, end];
}

// A row's cells. A pipe inside code splits only where the row has as many cells as it should because of it.
function cells(line, count) {
  const inside = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  const split = (text) => text.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  const whole = split(inside.replace(/(?<!`)(`+)(?!`)(.*?[^`])\1(?!`)/g, (code) => code.replace(/(?<!\\)\|/g, "\\|")));
  return whole.length !== count && split(inside).length === count ? split(inside) : whole;
}
