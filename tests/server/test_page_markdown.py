"""What the page makes of Markdown and of code. One browser start, one call for all cases."""

import html
import json
import random
import re
from collections.abc import Callable, Iterator

import pytest
from markdown_it import MarkdownIt

import scripted
from browser import Page
from live import running

LINK = '<a href="{}" target="_blank" rel="noopener noreferrer">{}</a>'


@pytest.fixture(scope="module")
def page(browser: Page) -> Iterator[Page]:
    state = scripted.state(scripted.ScriptedSession(scripted.tokenizer()))
    with running(state) as url:
        browser.open(url)
        yield browser
        browser.open("about:blank?done")
    assert state.worker.join(5)
    state.renderer.shutdown()


@pytest.fixture(scope="module")
def made(page: Page) -> Callable[[str], str]:
    results = page.run(f"import('/page/markdown.js').then((m) => {json.dumps([*TEXTS])}.map(m.markdown))")
    return dict(zip(TEXTS, results, strict=True)).__getitem__


def code(html: str, language: str = "text") -> str:
    caption = f'<figcaption><span>{language}</span><button type="button" data-copy>Copy</button></figcaption>'
    return f'<figure>{caption}<pre tabindex="0"><code>{html}</code></pre></figure>'


def table(*rows: str) -> str:
    lines = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="wide" tabindex="0"><table>{lines}</table></div>'


def link(address: str, text: str) -> str:
    return LINK.format(address, text)


NESTED = "<ul><li><p>a</p><ul><li><p>b</p></li></ul></li><li><p>c</p></li></ul>"
BOX = '<li class="task"><input type="checkbox" disabled aria-label="done"{}><p>{}</p></li>'
CASES = {
    # headings, rules, quotes
    "# A *b*\ntext `<i>` **c**": "<h3>A <em>b</em></h3><p>text <code>&#60;i&#62;</code> <strong>c</strong></p>",
    "#### Deep ##\n#no heading": "<h6>Deep</h6><p>#no heading</p>",
    "Title\n===\nand\nmore\n---\nx": "<h3>Title</h3><h4>and<br>more</h4><p>x</p>",
    "a list to be\n-": "<p>a list to be<br>-</p>",
    "> q\n\n---\n***": "<blockquote><p>q</p></blockquote><hr><hr>",
    "> a\nb\n\nc": "<blockquote><p>a<br>b</p></blockquote><p>c</p>",
    # lists
    "- a\n  - b\n- c": NESTED,
    "* a\n    * b\n* c": NESTED,
    "3. x\n4. y": '<ol start="3"><li><p>x</p></li><li><p>y</p></li></ol>',
    "1. a\n  - b\n2. c": "<ol><li><p>a</p><ul><li><p>b</p></li></ul></li><li><p>c</p></li></ol>",
    "- a\n\n- b\n\nc": '<ul class="loose"><li><p>a</p></li><li><p>b</p></li></ul><p>c</p>',
    "1. a\n\n   b\n2. c": "<ol><li><p>a</p><p>b</p></li><li><p>c</p></li></ol>",
    "so\n- a\nlazy": "<p>so</p><ul><li><p>a<br>lazy</p></li></ul>",
    "- a\n===\n\n> b\n===": "<ul><li><p>a<br>===</p></li></ul><blockquote><p>b<br>===</p></blockquote>",
    "in 1986. Or\n1986. A year": "<p>in 1986. Or<br>1986. A year</p>",
    "- [ ] a\n- [x] b": f"<ul>{BOX.format('', 'a')}{BOX.format(' checked', 'b')}</ul>",
    # code
    "~~~\n- no list\n# nor heading\n~~~\n": code("- no list\n# nor heading"),
    "1. Do\n   ```\n   def f():\n       return 1\n   ```\n2. x": (
        "<ol><li><p>Do</p>" + code("def f():\n    return 1") + "</li><li><p>x</p></li></ol>"
    ),
    "- ```\n\ta\n\n  b\n  ```": "<ul><li>" + code("  a\n\nb") + "</li></ul>",
    "- x\n  ```\nnot indented\n# nor this\n  ```\n- y": (
        "<ul><li><p>x</p>" + code("not indented\n# nor this") + "</li><li><p>y</p></li></ul>"
    ),
    "> ```\n> x\n>   y\n> ```\nz": "<blockquote>" + code("x\n  y") + "</blockquote><p>z</p>",
    "````\n```\na\n```\n````\nb": code("```\na\n```") + "<p>b</p>",
    "```\n\tmake\n```": code("\tmake"),
    "```\nunfinished": code("unfinished"),
    "a\n\n    for *args in x*y*z:\n\n        pass\n\nb": (
        "<p>a</p>" + code("for *args in x*y*z:\n\n    pass") + "<p>b</p>"
    ),
    "``a`b`` `` ` `` `**x**` `open": "<p><code>a`b</code> <code>`</code> <code>**x**</code> `open</p>",
    # tables
    "a|b\n-|-\n1|2": table("<th>a</th><th>b</th>", "<td>1</td><td>2</td>"),
    "| a | b |\n|:-:|--:|\n| `x|y` | \\| |\n| 1 |\n\nc": (
        table(
            '<th class="middle">a</th><th class="right">b</th>',
            '<td class="middle"><code>x|y</code></td><td class="right">|</td>',
            '<td class="middle">1</td><td class="right"></td>',
        )
        + "<p>c</p>"
    ),
    "a|b\n-|-\n`c|d`\n`e|f`|": table("<th>a</th><th>b</th>", "<td>`c</td><td>d`</td>", "<td>`e</td><td>f`</td>"),
    "a|b|c\n-|-|-\n`c|d`": table("<th>a</th><th>b</th><th>c</th>", "<td><code>c|d</code></td><td></td><td></td>"),
    "|`a\\|b`|\n|-|": table("<th><code>a|b</code></th>"),
    "a | b\nno table": "<p>a | b<br>no table</p>",
    # emphasis
    "__a__ _b_ ***c*** ~~d~~ **e*f*g**": (
        "<p><strong>a</strong> <em>b</em> <em><strong>c</strong></em> <del>d</del> <strong>e*f*g</strong></p>"
    ),
    "**over\nlines**": "<p><strong>over<br>lines</strong></p>",
    "2 * 3 * 4, a_b_c, 1. not a list": "<p>2 * 3 * 4, a_b_c, 1. not a list</p>",
    "for *args in x*y*z:": "<p>for *args in x*y*z:</p>",
    "**open and *closed*, ~5 ~ 6": "<p>**open and <em>closed</em>, ~5 ~ 6</p>",
    "**“强调”**的 *重*点": "<p><strong>“强调”</strong>的 <em>重</em>点</p>",
    "\\*no\\* \\(a_1 * b_1\\) c\\d": "<p>*no* \\(a_1 * b_1\\) c\\d</p>",
    "a<br>b &lt;i&gt; &copy; &nope &#38;": "<p>a<br>b &lt;i&gt; &copy; &#38;nope &#38;</p>",
    # links
    "[t](https://x.example/a?b=1&c)": f"<p>{link('https://x.example/a?b=1&#38;c', 't')}</p>",
    '[*t*](https://x.example/a_(b) "title")': f"<p>{link('https://x.example/a_(b)', '<em>t</em>')}</p>",
    "![alt](https://x.example/i.png)": f"<p>{link('https://x.example/i.png', 'alt')}</p>",
    "<https://x.example/>, <a@b>": f"<p>{link('https://x.example/', 'https://x.example/')}, &#60;a@b&#62;</p>",
    "(https://x.example/a_b_(c)). *https://x.example/d*": (
        f"<p>({link('https://x.example/a_b_(c)', 'https://x.example/a_b_(c)')}). "
        f"<em>{link('https://x.example/d', 'https://x.example/d')}</em></p>"
    ),
    "[a [b] c](https://x.example) [d] (e)": f"<p>{link('https://x.example', 'a [b] c')} [d] (e)</p>",
}
HOSTILE = (
    "[t](javascript:alert(1)) [t](data:text/html,x) [t](&#106;avascript:alert(1)) [t](JaVaScRiPt:alert(1))",
    '[t](https://x.example/"onmouseover="alert(1)) https://x.example/"onmouseover="alert(1)',
    "<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\n`<b>`\n\n    <b>\n\n- <b>\n\n> <b>\n\n# <b>",
    "```<b>\n<b>\n```\n\n~~~python <b>\n'<b>' # <b>\n~~~\n\n|<b>|\n|-|\n|<b>|",
    '[<img src=x>](https://x.example/<b>) ![<b>](https://x.example) <https://x.example/"onclick="x>',
)
LONG = tuple(
    mark * 4000 for mark in ("*a ", "[", "[a](", "`", "> ", "- ", "**", "<a", "_a", "\\(", "https://", "|", "1. ")
)
TEXTS = (*CASES, *HOSTILE)


@pytest.mark.parametrize("text", CASES)
def test_markdown_becomes_what_it_means(made, text):
    assert made(text) == CASES[text]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_tag_or_attribute_of_the_text_s_own_survives(page, made, text):
    found = page.run(
        f"(() => {{ const holder = document.createElement('template'); holder.innerHTML = {json.dumps(made(text))};"
        " const said = (e) => [e.localName, e.getAttributeNames(), e.href ?? ''];"
        " return [...holder.content.querySelectorAll('*')].map(said) })()"
    )
    allowed = {"a", "blockquote", "button", "code", "div", "figcaption", "figure", "h3", "li", "p", "pre", "span"}
    for name, attributes, address in found:
        assert name in allowed | {"table", "tbody", "td", "th", "tr", "ul"}
        assert set(attributes) <= {"class", "data-copy", "href", "rel", "tabindex", "target", "type"}
        assert not address or address.startswith("https://x.example")


def test_texts_that_are_made_to_be_slow_are_not(page):
    longest = page.run(
        f"import('/page/markdown.js').then((m) => Math.max(...{json.dumps(LONG)}.map((text) => {{"
        " const start = performance.now(); m.markdown(text); return performance.now() - start; })))"
    )
    assert longest < 2000  # milliseconds, for some 12 to 32 thousand characters


LINES = """
Some text here.|**bold** and *em* x|a_b_c and __b__|`code *x*`|***both*** a|~~d~~|**a *b* c**|text\\*|a * b|**a**b
*a **b** c*|[l](https://e.x/a)||||# Head|====|---|> quote|- item|  - nested|  more|* star|+ plus|1. one|   continued
2) paren|    deep|> z = 1|```|```py|x = 1|¦ a ¦ b ¦|¦---¦---¦|¦ 1 ¦ 2 ¦
"""
DRAWN = [line.replace("¦", "|") for row in LINES.strip().split("\n") for line in row.split("|")]
# Where the page is more forgiving than CommonMark: a list in a numbered item that is indented by two, a fence in an
# item or a quote, a table right below them, and a last line of a table that is indented.
ITEM = r"^ *(?:[-*+]|\d[.)]|>) .*\n(?:.*\n)*?"
FORGIVEN = re.compile(rf"^\d[.)].*\n(?:.*\n)*?  -|{ITEM}(?:```|\|)|> -|^\|.*\n(?:.*\n)*    ", re.MULTILINE)


def plain(text: str) -> str:
    """HTML without what the page adds to it, and without paragraphs, which it keeps in tight lists."""
    text = re.sub(r"<figcaption>.*?</figcaption>|</?(p|div|figure|thead|tbody|span)\b[^>]*>", "", text)
    text = re.sub(r"<(pre|code|a|td|th|br|hr)\b[^>]*>", r"<\1>", text).replace("\n</code>", "</code>")
    text = text.replace("<s>", "<del>").replace("</s>", "</del>").replace(' class="loose"', "")
    return " ".join(html.unescape(re.sub(r"\n+", "", text)).split())


def test_it_agrees_with_the_reference_parser_on_what_it_does_not_forgive(page):
    reference = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    draw = random.Random(1)
    texts = ["\n".join(draw.choices(DRAWN, k=draw.randint(1, 6))) for _ in range(800)]
    texts = [text for text in texts if not FORGIVEN.search(text)]
    assert len(texts) > 400
    results = page.run(f"import('/page/markdown.js').then((m) => {json.dumps(texts)}.map(m.markdown))")
    for text, ours in zip(texts, results, strict=True):
        expected = re.sub(r"(</?h)([1-4])>", lambda tag: f"{tag[1]}{int(tag[2]) + 2}>", reference.render(text))
        assert plain(ours) == plain(expected), text


COLOURED = {
    ("python", "x = 'a' # c"): 'x = <span class="string">&#39;a&#39;</span> <span class="comment"># c</span>',
    ("py", 'def f(a: int):\n    return """b\n# c"""'): (
        '<span class="keyword">def</span> <span class="call">f</span>(a: int):\n'
        '    <span class="keyword">return</span> <span class="string">&#34;&#34;&#34;b\n# c&#34;&#34;&#34;</span>'
    ),
    ("JS", "const a = `b${1}`; // 2"): (
        '<span class="keyword">const</span> a = <span class="string">`b${1}`</span>; <span class="comment">// 2</span>'
    ),
    ("rust", "let x = 0x1F;"): '<span class="keyword">let</span> x = <span class="number">0x1F</span>;',
    ("sql", "SELECT a"): '<span class="keyword">SELECT</span> a',
    ("html", '<a href="b">'): (
        '<span class="keyword">&#60;a</span> <span class="call">href</span>=<span class="string">&#34;b&#34;</span>'
        '<span class="keyword">&#62;</span>'
    ),
    ("diff", "+a\n-b\n c"): '<span class="added">+a</span>\n<span class="removed">-b</span>\n c',
    ("unheard-of", "<if>"): "&#60;if&#62;",
}


def test_code_is_coloured_by_its_language_and_stays_what_it_was(page):
    cases = json.dumps([list(case) for case in COLOURED])
    results = page.run(
        f"import('/page/highlight.js').then((m) => {cases}.map(([name, code]) => m.highlighted(code, name)))"
    )
    assert dict(zip(COLOURED, results, strict=True)) == COLOURED


PAINTED = """import('/page/drafted.js').then(async (d) => {{
  const {{ markdown }} = await import('/page/markdown.js'), node = document.createElement('div'), runs = [];
  node.innerHTML = markdown({source});
  d.note(runs, {pieces});
  const ranges = d.paint(node, {source}, runs);
  d.clear(ranges);
  return ranges.map((r) => r.startContainer.data.slice(r.startOffset, r.endOffset));
}})"""


@pytest.mark.parametrize(
    ("pieces", "coloured"),
    [
        ([["one ", False], ["two three", True], [" four", False]], "two three"),
        ([["**bo", True], ["ld** and ", False], ["`code`", True]], "bocode"),
        ([["```py\n", False], ["py = 1\n", True], ["```", True]], "py = 1"),
        ([["- a\n- ", True], ["b\n", False], ["- c", True]], "ac"),
        ([["👋 x", True], [" y", False]], "👋 x"),
        ([["a &lt; ", True], ["b", False], [" > c", True]], "a   > c"),
        ([["|a|b|\n|-|-|\n|1|", False], ["2|", True]], "2"),
    ],
)
def test_colours_stand_where_the_drafted_text_is_shown(page, pieces, coloured):
    source = json.dumps("".join(text for text, _ in pieces))
    found = page.run(PAINTED.format(source=source, pieces=json.dumps(pieces)))
    assert "".join(found) == coloured
