"""The page at `/`, as a person with a browser meets it. Skipped where there is no Chromium."""

import threading
from dataclasses import replace

import pytest

import scripted
from browser import ask
from dflash2_mlx.server.model import Engine
from dflash2_mlx.server.settings import ServeSettings
from dflash2_mlx.server.state import ServerState
from dflash2_mlx.server.worker import Worker
from live import running, wait_for
from scripted import ScriptedSession

pytestmark = pytest.mark.slow
THOUGHT = "A greeting.\n</think>\n\n"
SAID = THOUGHT + 'Hello **there**.\n\n```python\nprint("<hello>")\n```\n\n<img src=x onerror="document.title=1">'
ANSWERED = "document.querySelector('.answer:not(.busy) .foot b')"


def slow(session: ScriptedSession, text: str = THOUGHT + "word " * 2000) -> None:
    session.text, session.pace_s, session.round_size = text, 0.01, 3


def asked(session: ScriptedSession) -> str:
    """The last prompt as text."""
    return session.tokenizer.decode(list(session.requests[-1].prompt.tokens))


def test_an_answer_is_streamed_with_its_thinking_folded_and_its_numbers_shown(visit, session):
    session.text = SAID
    page = visit()
    page.wait("document.querySelector('#server dl')")
    ask(page, "Good day")
    page.wait(ANSWERED)
    assert page.text(".said") == "Good day" and page.text(".text").startswith("Hello there.")
    assert page.run("document.querySelector('.text strong').textContent") == "there"
    assert page.run("document.querySelector('.thoughts').open") is False
    assert page.text(".thoughts div") == "" and page.text(".thoughts summary").startswith("Thought for")
    page.click(".thoughts summary")
    assert page.text(".thoughts div") == "A greeting."
    for words in ("tok/s", "tokens per round", "of drafts accepted", "first token"):
        assert words in page.text(".foot")
    for words in ("Tokens per round", "Acceptance", "17 of 3 rows", "First token", "new, 0 cached", "thinking"):
        assert words in page.text("#last")


def test_what_a_model_writes_never_becomes_a_tag_of_its_own(visit, session):
    session.text = SAID
    page = visit()
    ask(page, "Good day")
    page.wait(ANSWERED)
    assert '<img src=x onerror="document.title=1">' in page.text(".text")
    assert (
        page.run("document.querySelectorAll('.text img').length") == 0 and page.run("document.title") == "dflash2-mlx"
    )
    assert page.run("document.querySelector('figure code').textContent") == 'print("<hello>")'
    inserted = "document.querySelector('.text').innerHTML = '<img src=x onerror=\"document.title=1\">'"
    page.run(f"{inserted}; new Promise((done) => setTimeout(done, 200))")
    assert page.run("document.title") == "dflash2-mlx", "the content policy did not hold"
    assert page.errors and all("Content Security Policy" in error for error in page.errors)
    page.errors.clear()


def test_the_whole_history_and_its_thinking_go_with_the_next_question(visit, session):
    session.text = SAID
    page = visit()
    page.run("$('system').value = 'Be brief.'")
    for number in (1, 2):
        ask(page, f"question {number}")
        page.wait(f"document.querySelectorAll('.answer:not(.busy) .foot b').length === {number}")
    parts = ["Be brief.", "question 1", "A greeting.", "Hello **there**.", "question 2"]
    places = [asked(session).find(part) for part in parts]
    assert -1 not in places and places == sorted(places)
    page.click("#new")
    assert page.run("document.querySelectorAll('article').length") == 0
    ask(page, "question 3")
    page.wait(ANSWERED)
    assert "question 1" not in asked(session)


def test_the_settings_are_sent(visit, session):
    session.text = SAID
    page = visit()
    page.wait("$('effort').length > 1")
    page.run("temperature.value = '0.5'; most.value = '7'; effort.value = 'low'")
    ask(page, "Good day")
    page.wait(ANSWERED)
    request = session.requests[-1]
    assert request.sampling.temperature == 0.5 and request.engine.max_tokens == 7
    assert "Cut at the most tokens" in page.text(".foot")
    page.run("temperature.value = '-1'")
    ask(page, "Not sent")
    assert len(session.requests) == 1 and page.run("temperature.matches(':invalid')")


@pytest.mark.parametrize("stop", ["click", "Escape"])
def test_an_answer_can_be_stopped_and_what_was_said_stays(visit, session, stop):
    slow(session)
    page = visit()
    ask(page, "Count")
    page.wait("document.querySelector('.text')?.innerText.length > 20")
    assert page.run("$('send').hidden && !$('stop').hidden")
    page.click("#stop") if stop == "click" else page.press("Escape")
    page.wait("document.querySelector('.foot').innerText.includes('Stopped by you')")
    page.wait("!document.querySelector('.answer.busy')")
    assert page.text(".text").startswith("word word")
    wait_for(lambda: session.closed == 1)  # the engine does not go on
    session.text = SAID
    ask(page, "And now?")
    page.wait(ANSWERED)
    assert "word word" in asked(session)


def test_a_selection_survives_what_is_streamed_after_it(visit, session):
    slow(session, THOUGHT + "First.\n\n" + "word " * 2000)
    page = visit()
    ask(page, "Count")
    page.wait("document.querySelectorAll('.text p').length === 2")
    page.run("getSelection().selectAllChildren(document.querySelector('.text p'))")
    length = page.run("document.querySelector('.text').innerText.length")
    page.wait(f"document.querySelector('.text').innerText.length > {length} + 20")
    assert page.run("getSelection().toString()") == "First."
    page.click("#stop")
    page.wait("!document.querySelector('.answer.busy')")


def test_a_refusal_is_shown_in_the_servers_words_and_the_question_can_be_asked_again(visit, session):
    session.text = SAID
    page = visit()
    page.run("effort.append(new Option('much', 'much')); effort.value = 'much'")
    ask(page, "Good day")
    page.wait("document.querySelector('.answer .error')")
    assert "reasoning_effort is 'much'" in page.text(".answer .error")
    page.run("effort.value = ''")
    page.click(".foot button")
    page.wait(ANSWERED)
    assert page.run("document.querySelectorAll('article').length") == 2 and page.text(".answer .error") == ""


def test_a_fault_in_the_middle_of_an_answer_is_told_beside_what_came(visit, session):
    session.text, session.fail_after = THOUGHT + "word " * 50, 10
    page = visit()
    ask(page, "Count")
    page.wait("document.querySelector('.answer .error')")
    assert "a fault" in page.text(".answer .error") and page.text(".text").startswith("word word")


def test_a_server_that_is_gone_is_told_in_words(browser, make_state, session):
    with running(make_state(session)) as url:
        browser.open(url)
        browser.wait("document.querySelector('#server dl')")
    ask(browser, "Anybody?")
    browser.wait("document.querySelector('.answer .error')")
    assert "does not answer" in browser.text(".answer .error")
    browser.wait("$('where').innerText.includes('does not answer')")


def test_the_key_is_asked_for_kept_for_the_tab_and_asked_again_when_refused(visit, session):
    session.text = SAID
    page = visit(ServeSettings(api_key="a key"))
    for key, asked in (("not it", "$('key-wrong').hidden"), ("a key", "!$('key-wrong').hidden")):
        page.wait(f"$('ask-key').open && {asked}")
        page.type(key)
        page.press("Enter")
    page.wait("document.querySelector('#server dl')")
    ask(page, "Good day")
    page.wait(ANSWERED)
    page.run("location.reload()")
    page.wait("document.querySelector('#server dl')")
    page.run("sessionStorage.clear()")


def test_without_a_key_it_says_so_and_offers_to_ask_again(visit, session):
    page = visit(ServeSettings(api_key="a key"))
    page.wait("$('ask-key').open")
    page.press("Escape")
    page.wait("$('server').innerText.includes('needs its API key')")
    page.click("#server button")
    page.wait("$('ask-key').open")
    page.click("#no-key")


def test_a_server_that_does_not_draft_says_why(visit, monkeypatch):
    drafting = scripted.model
    monkeypatch.setattr(
        scripted, "model", lambda *args: replace(drafting(*args), speculation_off="no drafter is known")
    )
    page = visit()
    page.wait("document.querySelector('#server dl')")
    assert "no drafter is known" in page.text("#server")


def test_on_a_phone_nothing_is_wider_than_the_screen_and_the_numbers_are_one_touch_away(visit, session):
    session.text = SAID
    page = visit()
    page.size(390, 800)
    ask(page, "Good day " * 30)
    page.wait(ANSWERED)
    assert page.run("document.documentElement.scrollWidth") == 390 and page.run("talk.scrollWidth <= talk.clientWidth")
    assert page.run("getComputedStyle(side).display") == "none"
    page.click("#panel")
    assert "tok/s" in page.text("#last") and page.run("panel.getAttribute('aria-expanded')") == "true"
    page.click("#panel")
    page.size(1200, 800)


TABLE = "| what | context | weights | plain | drafted |\n|-|-:|-:|-:|-:|\n|" + " 1,234,567.89 |" * 5


def test_on_a_phone_all_can_be_touched_and_no_number_is_broken(visit, session):
    session.text = SAID + "\n\n" + TABLE
    page = visit()
    page.size(390, 800)
    ask(page, "Good day")
    page.wait(ANSWERED)
    lines = "(e) => { const r = document.createRange(); r.selectNodeContents(e); return r.getClientRects().length }"
    assert page.run(f"[...document.querySelectorAll('td')].map({lines})") == [1] * 5
    assert page.run("document.documentElement.scrollWidth") == 390 and page.run("talk.scrollWidth <= talk.clientWidth")
    small = (
        "[...document.querySelectorAll('button, select, input, textarea, summary, .switch')]"
        ".map((e) => [e, e.getBoundingClientRect()])"
        ".filter(([e, r]) => r.width && e.type !== 'checkbox' && (r.width < 44 || r.height < 44))"
        ".map(([e]) => e.outerHTML)"
    )
    for opened in ("panel", "list"):
        assert page.run(small) == []
        page.click(f"#{opened}")
        assert page.run("talk.inert && ask.inert"), "what is covered is reached by the Tab key"
    assert page.run(small) == []
    page.click("#list")
    page.size(1200, 800)


def test_the_conversation_is_the_main_landmark_and_no_log(visit):
    page = visit()
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {node["role"]["value"]: node.get("name", {}).get("value") for node in nodes}
    assert roles["main"] == "Conversation" and roles["navigation"] == "Conversations" and "log" not in roles
    assert roles["complementary"] == "Numbers and settings" and "status" in roles


def test_every_control_has_a_name_and_is_reached_by_the_tab_key(visit):
    page = visit()
    page.call("Accessibility.enable")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    controls = [node for node in nodes if node["role"]["value"] in ("button", "textbox", "combobox", "spinbutton")]
    assert len(controls) > 8 and all(node["name"]["value"] for node in controls)
    page.run("document.activeElement.blur()")
    seen = set()
    for _ in range(14):
        page.press("Tab")
        seen.add(page.run("document.activeElement.id || document.activeElement.innerText"))
    assert {"new", "talk", "message", "send", "system", "temperature", "most", "effort", "Who are you?"} <= seen


def test_a_model_that_loads_is_told_and_then_it_answers(browser, session):
    loaded = threading.Event()
    worker = Worker(lambda: loaded.wait(20) and Engine(session, scripted.model(session.tokenizer)))
    worker.start()
    state = ServerState(worker, ServeSettings())
    session.text = SAID
    with running(state) as url:
        browser.open(url)
        browser.wait("$('where').innerText === 'loading the model'")
        ask(browser, "Good day")
        browser.wait("document.querySelector('.answer .error')")
        assert "the model is loading" in browser.text(".answer .error")
        loaded.set()
        browser.wait("$('where').innerText === 'scripted'")
        browser.click(".foot button")
        browser.wait(ANSWERED)
    assert worker.join(5)
    state.renderer.shutdown()
