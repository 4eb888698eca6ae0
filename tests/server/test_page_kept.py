"""What the page keeps: conversations, settings, edited messages; and how it shows drafts and their worth."""

import pytest

from browser import Page, ask
from scripted import ScriptedSession

THOUGHT = "A greeting.\n</think>\n\n"
DONE = "document.querySelectorAll('.answer:not(.busy) .foot b').length === {}"
TITLES = "[...document.querySelectorAll('#chats .title')].map((e) => e.textContent)"
SAID = "[...document.querySelectorAll('.said')].map((e) => e.textContent)"


@pytest.fixture
def page(visit, session) -> Page:
    session.text = THOUGHT + "Hello **there**, and a good day to you as well."
    return visit()


def prompt(session: ScriptedSession) -> str:
    return session.tokenizer.decode(list(session.requests[-1].prompt.tokens))


def answered(page: Page, *questions: str) -> None:
    for number, question in enumerate(questions, start=1):
        ask(page, question)
        page.wait(DONE.format(number))


def reload(page: Page) -> None:
    page.run("window.stale = true; location.reload()")
    page.wait("!window.stale && document.readyState === 'complete' && document.querySelector('#server dl')")


def test_a_reload_brings_the_conversation_and_the_settings_back(page, session):
    page.wait("effort.length > 1")
    page.run("$('system').value = 'Be brief.'; temperature.value = '0.5'; effort.value = 'low'")
    page.run("effort.dispatchEvent(new Event('change', { bubbles: true }))")
    answered(page, "question 1")
    reload(page)
    page.wait("effort.value === 'low'")
    assert page.run(SAID) == ["question 1"] and page.text(".answer .text").startswith("Hello there")
    assert "tok/s" in page.text(".answer .foot") and "tok/s" in page.text("#last")
    assert page.run("[$('system').value, temperature.value]") == ["Be brief.", "0.5"]
    ask(page, "question 2")
    page.wait(DONE.format(2))
    parts = ["Be brief.", "question 1", "A greeting.", "Hello **there**", "question 2"]
    places = [prompt(session).find(part) for part in parts]
    assert -1 not in places and places == sorted(places)


@pytest.mark.slow
def test_what_had_come_of_an_answer_survives_a_reload(page, session):
    session.text, session.pace_s = THOUGHT + "word " * 2000, 0.01
    ask(page, "Count")
    page.wait("document.querySelector('.text')?.innerText.length > 20")
    reload(page)
    assert page.text(".answer .text").startswith("word word") and "Stopped" in page.text(".answer .foot")
    assert page.run("$('stop').hidden")


@pytest.mark.slow
def test_conversations_are_listed_opened_renamed_and_deleted(page):
    answered(page, "first of all")
    page.click("#new")
    assert page.run(SAID) == []
    answered(page, "second")
    assert page.run(TITLES) == ["second", "first of all"]
    page.run("document.querySelectorAll('#chats .title')[1].click()")
    assert page.run(SAID) == ["first of all"] and page.run("document.querySelectorAll('[aria-current]').length") == 1
    page.run("document.querySelector('[aria-label=\"Rename second\"]').click()")
    page.type("<b>another</b> name")
    page.press("Enter")
    assert page.run(TITLES) == ["<b>another</b> name", "first of all"]
    page.run("document.querySelector('[aria-label=\"Delete first of all\"]').click()")
    assert page.run(TITLES) == ["<b>another</b> name"] and page.run(SAID) == []
    page.click("#undo")
    assert page.run(TITLES) == ["<b>another</b> name", "first of all"]
    page.click("#forget")
    reload(page)
    assert page.run(TITLES) == [] and page.run(SAID) == []


@pytest.mark.slow
def test_a_conversation_that_is_deleted_while_it_is_answered_does_not_come_back(page, session):
    session.text, session.pace_s = THOUGHT + "word " * 2000, 0.01
    ask(page, "Count")
    page.wait("document.querySelector('.text')?.innerText.length > 20")
    page.click("#forget")
    page.wait("!document.querySelector('.answer.busy')")
    assert page.run(TITLES) == [] and page.run("$('send').hidden") is False


@pytest.mark.slow
def test_storage_that_is_full_or_was_written_by_others_is_no_fault(page):
    page.run("localStorage.setItem('dflash2-mlx chat x', '{'); localStorage.setItem('dflash2-mlx settings', '[')")
    page.run("localStorage.setItem('filler', 'x'.repeat(5 * 2 ** 20 - 200))")
    reload(page)
    answered(page, "question")
    assert page.run("$('full').hidden") is False and page.text(".answer .text").startswith("Hello there")
    page.run("localStorage.removeItem('filler')")
    ask(page, "and again")
    page.wait(DONE.format(2))
    assert page.run("$('full').hidden") is True and page.run(TITLES) == ["question"]


def test_an_earlier_message_can_be_edited_and_the_conversation_goes_on_from_there(page, session):
    answered(page, "first", "second")
    page.run("document.querySelectorAll('.user button')[2].click()")  # of the second message
    page.wait("document.activeElement.closest('.edit')")
    page.run("document.activeElement.select()")
    page.type("another second")
    page.press("Enter")
    page.wait(f"{SAID}.at(-1) === 'another second' && {DONE.format(2)}")
    assert page.run(SAID) == ["first", "another second"] and page.run(f"{TITLES}.length") == 1
    assert "first" in prompt(session) and "another second" in prompt(session) and len(session.requests) == 3
    page.run("document.querySelector('.user button').click()")
    page.type(", edited")
    page.press("Enter")
    page.wait(f"{SAID}.length === 1 && {DONE.format(1)}")
    assert page.run(TITLES) == ["first, edited", "first"], "what came after the message was lost"
    assert "another second" not in prompt(session)


@pytest.mark.slow
def test_an_edit_that_is_cancelled_changes_nothing(page, session):
    answered(page, "first")
    page.run("document.querySelector('.user button').click()")
    page.type(" and more")
    page.press("Escape")
    assert page.run(SAID) == ["first"] and len(session.requests) == 1
    assert page.run("document.activeElement.textContent") == "Edit"


COLOURED = "[...CSS.highlights.get('drafted')].map((r) => r.startContainer.data.slice(r.startOffset, r.endOffset))"


def test_drafted_tokens_are_coloured_where_the_reader_asks_and_after_a_reload(page, session):
    code = "```python\npath = 1  # &\n```\n\n- **bold** &amp; [a link](https://a.example/path) done"
    session.text, session.round_size = THOUGHT + code, 4
    answered(page, "Good day")
    assert page.run(COLOURED) == []
    page.click("#colour")
    drafted = page.run(f"{COLOURED}.join('')")
    shown = page.run("[...document.querySelectorAll('.thoughts div, .text')].map((e) => e.textContent).join('')")
    assert 0 < len(drafted) < len(shown)
    runs = page.run(
        "JSON.parse(localStorage.getItem(Object.keys(localStorage).find((k) => k.includes('chat')))).turns[1]"
    )
    assert sum(runs["drafted"]["content"]) == len(code) and sum(runs["drafted"]["reasoning"]) == len("A greeting.")
    reload(page)
    assert page.run(f"{COLOURED}.join('')") == drafted
    page.click("#colour")
    assert page.run(COLOURED) == []


@pytest.mark.slow
def test_the_rate_is_told_while_an_answer_comes(page, session):
    session.text, session.pace_s = THOUGHT + "word " * 2000, 0.01
    ask(page, "Count")
    page.wait("/^[\\d.,]+ tok\\/s.*% of drafts accepted/s.test(document.querySelector('.answer .foot').innerText)")
    page.click("#stop")
    page.wait("!document.querySelector('.answer.busy')")


@pytest.mark.slow
def test_the_factor_over_plain_is_told_once_it_was_measured(page, session):
    session.pace_s = 0.002
    answered(page, "Good day")
    assert "plain" not in page.text(".answer .foot b + b") and "×" not in page.text(".answer .foot")
    session.pace_s = 0.004
    page.run("[...document.querySelectorAll('.foot button')].at(-1).click()")
    page.wait("document.querySelector('.answer .foot').innerText.includes('× plain')")
    assert session.requests[-1].engine.block_size == 1 and session.requests[-1].engine.max_tokens <= 64
    assert page.run(SAID) == ["Good day"] and "Compare" not in page.text(".answer .foot")
    ask(page, "And now?")
    page.wait(DONE.format(4))  # a rate and a factor each
    assert session.requests[-1].engine.block_size is None
