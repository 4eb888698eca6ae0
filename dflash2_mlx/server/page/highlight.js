// Code to HTML with comments, strings, numbers, keywords and calls coloured: a guess by patterns, never a parser.

import { escaped } from "./inline.js";

const STRINGS = [String.raw`"(?:\\.|[^"\\\n])*"`, String.raw`'(?:\\.|[^'\\\n])*'`];
const HASH = String.raw`(?<![^\s;(])#.*`, SLASHES = String.raw`\/\/.*|\/\*[^]*?(?:\*\/|(?![^]))`;
const NUMBER = String.raw`(?<![\w.])(?:0[xob][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![A-Za-z_]\w\w)\w{0,3}`;
const CALL = String.raw`\b[A-Za-z_]\w*[!?]?(?=\()`;

const PYTHON =
  "and as assert async await break case class continue def del elif else except False finally for from global if " +
  "import in is lambda match None nonlocal not or pass raise return self True try while with yield";
const SCRIPT =
  "as async await break case catch class const continue debugger default delete do else enum export extends false " +
  "finally for from function get if implements import in instanceof interface let new null of private public return " +
  "set static super switch this throw true try type typeof undefined var void while yield";
const SYSTEM =
  "abstract auto bool boolean break byte case catch char class const continue crate default defer do double else " +
  "enum export extends extern false final finally float fn for func fun go goto guard if impl implements import " +
  "in inline int interface internal let long loop map match mod mut namespace new nil null nullptr override " +
  "package private protected protocol public pub range return select self short signed sizeof static string " +
  "struct super switch template this throw throws trait true try type typedef typename union unsafe unsigned use " +
  "using val var virtual void volatile when where while";
const SHELL =
  "alias case cd do done echo elif else esac eval exec exit export fi for function if in local read return set shift " +
  "source sudo test then trap unset until while";
const SQL =
  "add all alter and as asc begin between by case commit create cross delete desc distinct drop else end exists from " +
  "full group having in index inner insert into is join key left like limit not null offset on or order outer " +
  "primary references right rollback select set table then union unique update values view when where with";
const RUBY =
  "alias and begin break case class def do else elsif end ensure false for function if in local module next nil not " +
  "or require rescue return self super then true unless until when while yield";
const DATA = "true false null yes no on off";

// What a language is made of: keywords, how comments look, and what else is a string.
const LANGUAGES = {
  python: [PYTHON, HASH, String.raw`"""[^]*?(?:"""|(?![^]))|'''[^]*?(?:'''|(?![^]))`],
  javascript: [SCRIPT, SLASHES, String.raw`\`(?:\\.|[^\`\\])*(?:\`|(?![^]))`],
  c: [SYSTEM, SLASHES],
  shell: [SHELL, HASH],
  ruby: [RUBY, HASH],
  lua: [RUBY, "--.*"],
  sql: [SQL, String.raw`--.*|\/\*[^]*?(?:\*\/|(?![^]))`],
  yaml: [DATA, HASH],
  json: [DATA, SLASHES],
  css: ["important", String.raw`\/\*[^]*?(?:\*\/|(?![^]))`],
};
const NAMES = {
  python: "py python python3 pycon",
  javascript: "js jsx javascript mjs node ts tsx typescript",
  c: "c h cc cpp c++ cs csharp c# cuda dart go golang java kotlin kt metal objc php rs rust scala swift zig",
  shell: "bash console docker dockerfile fish makefile sh shell zsh",
  ruby: "elixir perl r rb ruby julia jl",
  lua: "haskell hs lua",
  sql: "mysql postgresql psql sql sqlite",
  yaml: "conf env ini properties toml yaml yml",
  json: "json json5 jsonc jsonl",
  css: "css less scss",
};
const LANGUAGE = new Map(
  Object.entries(NAMES).flatMap(([language, names]) => names.split(" ").map((name) => [name, language])),
);
const MARKUP = [
  ["comment", String.raw`<!--[^]*?(?:-->|(?![^]))`],
  ["keyword", String.raw`<\/?[\w:-]+|\/?>`],
  ["call", String.raw`\b[\w:-]+(?==)`],
  ["string", STRINGS[0]],
];
const CHANGES = [
  ["comment", "^(?:@@|diff |index |---|\\+\\+\\+).*"],
  ["added", "^\\+.*"],
  ["removed", "^-.*"],
];
const patterns = new Map(); // compiled on first use

function rules(name) {
  if (/^(html|xml|svg|vue|xhtml|plist)$/.test(name)) return MARKUP;
  if (/^(diff|patch)$/.test(name)) return CHANGES;
  const language = LANGUAGE.get(name);
  if (!language) return null;
  const [words, comment, further] = LANGUAGES[language];
  return [
    ["string", [...(further ? [further] : []), ...STRINGS].join("|")],
    ["comment", comment],
    ["call", language === "shell" ? String.raw`\$\{?\w+\}?` : String.raw`(?<!\w)@\w+`],
    ["keyword", String.raw`(?<![\w.$-])(?:${words.split(" ").join("|")})(?![\w-])`],
    ["number", NUMBER],
    ["call", CALL],
  ];
}

function patternOf(name) {
  if (!patterns.has(name)) {
    const kinds = rules(name);
    const source = kinds?.map(([, pattern]) => `(${pattern})`).join("|");
    patterns.set(name, kinds && [new RegExp(source, LANGUAGE.get(name) === "sql" ? "gim" : "gm"), kinds]);
  }
  return patterns.get(name);
}

// The HTML of `code`; without colours where the language is not known.
export function highlighted(code, name) {
  const [pattern, kinds] = patternOf(name.toLowerCase()) ?? [];
  if (!pattern) return escaped(code);
  let html = "", at = 0;
  for (const match of code.matchAll(pattern)) {
    if (!match[0]) continue;
    const kind = kinds[match.slice(1).findIndex((group) => group !== undefined)][0];
    html += `${escaped(code.slice(at, match.index))}<span class="${kind}">${escaped(match[0])}</span>`;
    at = match.index + match[0].length;
  }
  return html + escaped(code.slice(at));
}
