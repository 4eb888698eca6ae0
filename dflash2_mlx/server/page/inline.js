// Inline Markdown to HTML. All text is escaped before it becomes HTML, so no tag of the model's survives.

export const escaped = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

// As `escaped`, but entities such as &nbsp; are left for the browser to read: what they stand for is text, never a tag
const readable = (text) =>
  escaped(text).replace(/&#38;(#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z][a-zA-Z\d]{1,31});/g, "&$1;");

const SPECIAL = /[\\`*_~<[!\n]|(?<!\w)https?:\/\//g; // where something may begin
const MATHS = /\\\((?:.|\n(?!\n))+?\\\)|\\\[[^]+?\\\]/y; // shown as written
const BREAK = /<br\s*\/?>/iy;
const ADDRESS = /<((?:https?:\/\/|mailto:)[^\s<>]*)>/y;
const BARE = /https?:\/\/[^\s<>"`]+/y;
const TARGET = new RegExp(
  String.raw`\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.|\([^\s()]*\))*\))*))` +
    String.raw`(?:\s+(?:"[^"]*"|'[^']*'|\([^()]*\)))?\s*\)`,
  "y",
);
const LONGEST_LABEL = 1000; // characters

export function inline(text, linked = false) {
  const parts = [""]; // HTML, and between it runs of * _ ~ that may become emphasis
  const put = (html) => (typeof parts.at(-1) === "string" ? (parts[parts.length - 1] += html) : parts.push(html));
  let at = 0;
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const start = SPECIAL.exec(text)?.index ?? text.length;
    put(readable(text.slice(at, start)));
    at = start;
    if (at === text.length) break;
    const run = "*_~".includes(text[at]) && delimiters(text, at);
    const [html, end] = run ? [run, at + run.count] : piece(text, at, linked);
    run && (run.open || run.close) ? parts.push(run) : put(run ? run.char.repeat(run.count) : html);
    at = end;
  }
  return emphasised(parts);
}

// The HTML of what begins at `at`, and where it ends.
function piece(text, at, linked) {
  const match = (pattern) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  const character = text[at];
  let found;
  if (character === "\n") return ["<br>", at + 1 + text.slice(at + 1).search(/[^ \t]|$/)];
  if (character === "\\") {
    if ((found = match(MATHS))) return [escaped(found[0]), at + found[0].length];
    if (/[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) return [escaped(text[at + 1]), at + 2];
    return text[at + 1] === "\n" ? ["", at + 1] : ["\\", at + 1];
  }
  if (character === "`") return code(text, at);
  if (character === "<" && match(BREAK)) return ["<br>", at + BREAK.lastIndex - at];
  if (character === "<" && !linked && (found = match(ADDRESS))) {
    return [anchor(found[1], escaped(found[1].replace("mailto:", ""))), ADDRESS.lastIndex];
  }
  if (character === "h" && !linked) return bare(match(BARE)?.[0] ?? "", at) ?? ["h", at + 1];
  if (character === "[" || (character === "!" && text[at + 1] === "[")) {
    found = !linked && link(text, at + (character === "!"));
    if (found) return found;
  }
  return [escaped(character), at + 1];
}

function code(text, at) {
  const fence = text.slice(at).match(/^`+/)[0];
  const closing = new RegExp(`(?<!\`)${fence}(?!\`)`, "g");
  closing.lastIndex = at + fence.length;
  const end = closing.exec(text)?.index;
  if (end === undefined) return [fence, at + fence.length];
  let inside = text.slice(at + fence.length, end).replaceAll("\n", " ");
  if (/^ .*[^ ].* $|^ [^ ] $/.test(inside)) inside = inside.slice(1, -1);
  return [`<code>${escaped(inside)}</code>`, end + fence.length];
}

// A link or an image, which is shown as a link: nothing is fetched for a text. Only addresses of the web and mail.
function link(text, at) {
  let depth = 0, end = at;
  for (; end < Math.min(text.length, at + LONGEST_LABEL); end++) {
    if (text[end] === "\\") end++;
    else if (text[end] === "[") depth++;
    else if (text[end] === "]" && !--depth) break;
  }
  TARGET.lastIndex = end + 1;
  const target = text[end] === "]" && TARGET.exec(text);
  const address = target && (target[1] ?? target[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1");
  if (!target || !/^(https?:\/\/|mailto:)/i.test(address)) return null;
  return [anchor(address, inline(text.slice(at + 1, end), true) || escaped(address)), TARGET.lastIndex];
}

function bare(address, at) {
  let found = address.replace(/[.,:;!?*_~'")\]]+$/, "");
  const missing = found.split("(").length - found.split(")").length; // closing brackets that belong to it
  for (let n = 0; n < missing && address[found.length] === ")"; n++) found += ")";
  return found.length > 8 ? [anchor(found, escaped(found)), at + found.length] : null;
}

const anchor = (address, html) =>
  `<a href="${escaped(address)}" target="_blank" rel="noopener noreferrer">${html}</a>`;

// Emphasis. Source: CommonMark 0.31, section 6.2 and "Process emphasis"; more forgiving in two places: a single *
// between two letters is a star (x*y*z), and scripts that put no spaces between words count as punctuation does.
const SPACE = /\s/, MARK = /[\p{P}\p{S}]/u, WORD = /\w/;
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

function delimiters(text, at) {
  const char = text[at];
  let end = at;
  while (text[end] === char) end++;
  const before = text[at - 1] ?? " ", after = text[end] ?? " ", count = end - at;
  const edge = (other) => SPACE.test(other) || MARK.test(other) || UNSPACED.test(other);
  const left = !SPACE.test(after) && (!MARK.test(after) || edge(before));
  const right = !SPACE.test(before) && (!MARK.test(before) || edge(after));
  const run = { char, count, length: count, open: left, close: right, before: "", after: "" };
  if (char === "_") {
    run.open = left && (!right || MARK.test(before));
    run.close = right && (!left || MARK.test(after));
  }
  const star = char === "*" && count === 1 && WORD.test(before) && WORD.test(after);
  if (star || (char === "~" && count !== 2)) run.open = run.close = false;
  return run;
}

function emphasised(parts) {
  const openers = []; // places in `parts`
  parts.forEach((closer, place) => {
    if (typeof closer === "string") return;
    while (closer.close && closer.count) {
      const found = openers.findLastIndex((opener) => pairs(parts[opener], closer));
      if (found < 0) break;
      const opener = parts[openers[found]], used = Math.min(2, opener.count, closer.count);
      const tag = closer.char === "~" ? "del" : used === 2 ? "strong" : "em";
      opener.after = `<${tag}>${opener.after}`;
      closer.before += `</${tag}>`;
      opener.count -= used;
      closer.count -= used;
      openers.length = found + (opener.count ? 1 : 0); // what lies between them can open nothing any more
    }
    if (closer.open && closer.count) openers.push(place);
  });
  return parts.map((p) => (typeof p === "string" ? p : p.before + p.char.repeat(p.count) + p.after)).join("");
}

function pairs(opener, closer) {
  const both = (opener.open && opener.close) || (closer.open && closer.close);
  const three = (opener.length + closer.length) % 3 === 0 && (opener.length % 3 || closer.length % 3);
  return opener.char === closer.char && !(both && three);
}
