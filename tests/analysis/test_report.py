"""The head report: its content, and its behaviour in a real browser."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import chromium, drawn, opened
from examples import sentence, statistics, write_alpha_log, write_maps

from user_dir.analysis.maps import read_maps
from user_dir.analysis.report import write_report
from user_dir.analysis.report.page import quantised, report_data, report_page
from user_dir.analysis.results import ModelAnalysis
from user_dir.analysis.trajectories import read_trajectories
from user_dir.attention.types import ATTENTION_TYPES

HOSTILE = "</script><!--<img src=x onerror=alert(1)> {{data}} & „Satz“\u2028"
WORDS = ["▁Der", "▁Hu", "nd", "▁<b>", "▁schläft", "."]


def model(folder, name="ours", layers=2, heads=3, seed=0, sentences=None) -> ModelAnalysis:
    folder.mkdir(exist_ok=True)
    if sentences is None:
        sentences = [
            sentence(6, 5, layers, heads, seed=seed + number, words=WORDS, text=text)
            for number, text in enumerate(("Der Hund schläft.", HOSTILE, ""))
        ]
    log = write_alpha_log(folder / f"{name}.jsonl", layers=layers, heads=heads, seed=seed)
    return ModelAnalysis(
        name,
        statistics(layers, heads, seed, f"{name}.pt"),
        read_trajectories(log),
        read_maps(write_maps(folder / name, sentences)),
    )


def embedded(page: str) -> dict:
    """The data in a page, parsed as by a browser: the element ends at the first ``</script``."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script', page, re.S)
    return json.loads(match.group(1))


def test_quantised_weights_keep_zeros_exactly_and_values_approximately():
    random = np.random.default_rng(0)
    weights = np.concatenate([10.0 ** -random.uniform(0, 12, 5000), [0.0, 1.0, np.float32(1e-45)]])
    weights = weights.astype(np.float32)
    q = quantised(weights)
    assert q.dtype == np.uint8
    assert ((q == 0) == (weights == 0)).all()
    error = np.abs((q / 255.0) ** 2 - weights)
    assert (error <= 1.0001 * (np.sqrt(weights) / 255 + 1 / 65025)).all()
    assert error[(weights > 0.005) & (weights < 0.01)].max() < 0.0004


def test_embedded_weights_equal_those_of_the_maps(tmp_path):
    ours = model(tmp_path)
    data = embedded(report_page([ours]))["models"][0]["maps"]
    assert data["shape"] == {name: [2, 3] for name in ATTENTION_TYPES}
    for packed, maps in zip(data["sentences"], ours.maps):
        raw = np.frombuffer(zlib.decompress(base64.b64decode(packed["weights"])), np.uint8)
        expected = np.concatenate([quantised(weights).ravel() for weights in maps.weights.values()])
        assert (raw == expected).all()
        assert packed["source"] == maps.source
        assert packed["text"] == maps.text
    for maps in ours.maps:
        for weights in maps.weights.values():
            weights *= 3  # as ReLA's may be
    assert embedded(report_page([ours]))["models"][0]["maps"] == data
    assert len(report_data([ours], 2)["models"][0]["maps"]["sentences"]) == 2


def test_text_cannot_leave_the_data_element(tmp_path):
    page = report_page([replace(model(tmp_path), name=HOSTILE)])
    assert embedded(page)["models"][0]["name"] == HOSTILE
    assert embedded(page)["models"][0]["maps"]["sentences"][1]["text"] == HOSTILE
    assert page.count("<img") == 0
    assert len(re.findall("</script", page)) == 2


# ------------------------------------------------------------------------------------ in the browser


@pytest.fixture(scope="module")
def browser():
    with chromium() as chrome:
        yield chrome


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Models and the page about them: two with all results, one with statistics only."""
    folder = tmp_path_factory.mktemp("report")
    models = [model(folder, "ours"), model(folder, "theirs", seed=5)]
    models.append(ModelAnalysis("bare_" * 20, statistics(seed=9)))
    write_report(models, folder / "report.html")
    return models, folder / "report.html"


def shown_map(panel) -> np.ndarray:
    """The weights in the explorer's table: the text of a cell, or 0 for an empty one."""
    rows = panel.locator(".matrix tbody tr")
    cells = rows.evaluate_all(
        "rows => rows.map(row => [...row.querySelectorAll('td')].map(td => td.textContent))"
    )
    empty = rows.evaluate_all(
        "rows => rows.map(row => [...row.querySelectorAll('td')].map(td => !td.childNodes.length "
        "&& getComputedStyle(td).backgroundColor === getComputedStyle(document.body).backgroundColor))"
    )
    assert empty == [[text == "" for text in row] for row in cells]
    return np.array([[float(text.strip("<% ") or 0) / 100 for text in row] for row in cells])


def test_the_explorer_shows_the_weights_of_the_clicked_head(browser, report):
    models, path = report
    with opened(browser, path) as page:
        explorer = page.locator("#explorer")
        explorer.scroll_into_view_if_needed()
        panels = explorer.locator(".explorer-panel")
        assert panels.count() == 2
        for number, attention_type, layer, head in ((0, "encoder_self", 1, 2), (1, "decoder_context", 0, 1)):
            explorer.get_by_label("Sentence", exact=True).select_option(str(number))
            explorer.locator(f"input[value={attention_type}]").check()
            drawn(page)
            for panel, ours in zip((panels.nth(0), panels.nth(1)), models):
                panel.get_by_role("radio", name=f"layer {layer}, head {head},").click()
                weights = ours.maps[number].head(attention_type, layer, head)
                shown = shown_map(panel)
                assert ((shown == 0) == (weights == 0)).all()
                assert np.abs(shown - weights).max() < 0.01
        explorer.locator("input[value=decoder_self]").check()
        drawn(page)
        panels.nth(0).get_by_role("radio", name="layer 1, head 2,").click()
        panels.nth(0).locator(".token").nth(3).click()
        weights = models[0].maps[1].head("decoder_self", 1, 2)[3]
        said = panels.nth(0).locator(".readout").inner_text()
        assert f"attends to {(weights > 0).sum()} of 4 tokens" in said
        assert panels.nth(1).locator("[aria-pressed=true]").inner_text().startswith("nd")


def test_user_text_is_not_interpreted_as_markup(browser, report):
    with opened(browser, report[1]) as page:
        page.get_by_label("Sentence", exact=True).select_option("1")
        assert page.locator(".source").text_content() == HOSTILE
        assert page.locator("img, b").count() == 0
        page.get_by_label("Sentence", exact=True).select_option("2")
        assert page.locator(".source").text_content() == "Der Hund <b> schläft"


def test_the_keyboard_is_sufficient(browser, report):
    with opened(browser, report[1]) as page:
        panel = page.locator(".explorer-panel").nth(0)
        page.get_by_label("Next sentence").focus()
        page.keyboard.press("Enter")
        assert page.get_by_label("Sentence", exact=True).input_value() == "1"
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowLeft")
        assert page.locator("input[value=decoder_self]").is_checked()
        drawn(page)

        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        assert not page.get_by_label("same head in all models").is_checked()

        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "words"
        page.keyboard.press("Tab")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "mean of all heads"
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        focused = "document.activeElement"
        assert page.evaluate(f"{focused}.getAttribute('aria-label')").startswith("layer 1, head 1,")
        assert page.evaluate(f"{focused}.getAttribute('aria-checked')") == "true"
        assert panel.locator(".thumb[tabindex='0']").count() == 1

        page.keyboard.press("Tab")
        if page.evaluate(f"{focused}.classList.contains('scroll')"):
            page.keyboard.press("Tab")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        assert page.evaluate(f"{focused}.getAttribute('aria-pressed')") == "true"
        assert panel.locator(".token[aria-pressed=true]").count() == 1
        assert "attends to" in panel.locator("[role=status]").inner_text()

        page.locator("#trajectories .chart").nth(0).focus()
        page.keyboard.press("ArrowUp")
        said = page.locator("#trajectories [role=status]").nth(0).inner_text()
        assert re.fullmatch(r"layer 0, head 0: α 1\.\d{3} at update 400", said)


def test_hovering_over_a_trajectory_names_its_head(browser, report):
    models, path = report
    with opened(browser, path) as page:
        chart = page.locator("#trajectories .chart").nth(1)
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        drawn = chart.locator(".line").evaluate_all("lines => lines.map(line => line.getAttribute('d'))")
        ends = [tuple(map(float, re.search(r"([\d.]+) ([\d.]+)$", line).groups())) for line in drawn]
        x, y = min(ends, key=lambda end: end[1])
        x, y = box["x"] + x / 400 * box["width"], box["y"] + y / 260 * box["height"]
        page.mouse.move(x, y)
        last = models[0].trajectories.alphas["decoder_self"][-1]
        layer, head = divmod(int(last.argmax()), last.shape[1])
        expected = f"layer {layer}, head {head}: α {last.max():.3f} at update 400"
        assert page.locator("#tip").inner_text() == expected
        page.mouse.click(x, y)
        title = page.locator(".explorer-panel").nth(0).locator(".head-title strong")
        title.filter(has_text=f"layer {layer}, head {head}").wait_for()
        assert page.locator("input[value=decoder_self]").is_checked()


def test_a_layer_of_a_single_head_has_no_diversity_and_all_sections(browser, tmp_path):
    ours, single = model(tmp_path), model(tmp_path, "single", heads=1)
    for row in single.statistics["layers"]:
        row["diversity"] = None
    ours.statistics["layers"][0]["diversity"] = None
    write_report([ours, single], tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        markers = page.locator("#diversity .panel").nth(0).locator(".marker title").all_text_contents()
        expected = ours.statistics["layers"][1]["diversity"]
        assert markers == [f"ours, layer 1: {expected:.3f}"]
        assert page.locator(".explorer-panel .matrix").count() == 2


def test_all_sections_exist_and_tables_can_be_sorted(browser, report):
    models, path = report
    with opened(browser, path) as page:
        for link in page.locator("nav a").all():
            assert page.locator(link.get_attribute("href")).count() == 1
        assert page.locator("#alphas .bar").count() > 0
        assert page.locator("#models .card").count() == 3
        page.locator("#heads summary").nth(0).click()
        page.locator("#heads th button", has_text=re.compile("^density$")).nth(0).click()
        table = page.locator("#heads table").nth(0)
        headers = [text.strip() for text in table.locator("thead th").all_text_contents()]
        index = headers.index("density") + 1
        values = table.locator(f"tbody tr > :nth-child({index})").all_text_contents()
        expected = sorted((row["density"] for row in models[0].statistics["heads"]), reverse=True)
        assert [float(value) for value in values] == pytest.approx(expected, abs=6e-4)
        assert table.locator("th[aria-sort=descending]").count() == 1


def titles(page) -> list[str]:
    """The heads shown, one per model."""
    return page.locator(".head-title strong").all_text_contents()


@pytest.mark.nightly
def test_head_sentence_and_token_are_kept_in_the_url(browser, report):
    path = report[1]
    with opened(browser, path) as page:
        page.get_by_label("Next sentence").click()
        page.locator("#explorer input[value=decoder_context]").check()
        drawn(page)
        page.locator(".explorer-panel").nth(1).get_by_role("radio", name="layer 1, head 2,").click()
        page.locator(".explorer-panel").nth(0).locator(".token").nth(3).click()
        assert titles(page) == ["layer 1, head 2"] * 2, "the head is not linked between the models"
        address = page.evaluate("location.hash")
        assert address == "#explorer?sentence=1&attention=decoder_context&head=1.2&token=3"
        shown = shown_map(page.locator(".explorer-panel").nth(1))

        page.get_by_label("same head in all models").uncheck()
        page.locator(".explorer-panel").nth(1).get_by_role("radio", name="layer 0, head 1,").click()
        assert titles(page) == ["layer 1, head 2", "layer 0, head 1"]
        unlinked = page.evaluate("location.hash")
        assert "head=1.2%2C0.1" in unlinked
    for where, second in ((address, "layer 1, head 2"), (unlinked, "layer 0, head 1")):
        with opened(browser, path, where) as page:
            assert titles(page) == ["layer 1, head 2", second]
            assert page.get_by_label("Sentence", exact=True).input_value() == "1"
            assert page.locator(".token[aria-pressed=true]").nth(0).inner_text().startswith("nd")
            assert page.get_by_label("same head in all models").is_checked() == (where == address)
            if where == address:
                assert (shown_map(page.locator(".explorer-panel").nth(1)) == shown).all()
    with opened(browser, path, "#explorer?sentence=x&attention=none&head=7.9,-1.2&token=1e9") as page:
        assert page.get_by_label("Sentence", exact=True).input_value() == "0"
        assert page.locator(".matrix").count() == 2


def test_both_sentences_are_shown_and_equal_tokens_are_distinguished(browser, tmp_path):
    words = ["▁the", "▁cat", "▁and", "▁the", "▁dog"]
    write_report([model(tmp_path, sentences=[sentence(5, 6, words=words)])], tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        assert page.locator(".source").text_content() == "the cat and the"
        assert page.locator(".reference").text_content() == "the cat and the dog"
        assert "teacher forcing" in page.locator("#explorer .note:visible").all_text_contents()[0]
        corner = page.locator(".corner span").all_text_contents()[:2]
        assert corner == ["keys: source →", "queries: reference ↓"]
        keys = page.locator(".matrix thead th .piece").all_text_contents()
        assert keys == ["the0", "cat", "and", "the3", "</s>"]
        rows = page.locator(".matrix .token").all_text_contents()
        assert rows == ["</s>→ the1", "the1→ cat", "cat→ and", "and→ the4", "the4→ dog", "dog→ </s>"]
        page.locator(".matrix td").nth(3).hover()
        assert page.locator("#tip").inner_text().startswith("to write the (1), </s> attends to the (3)")
        page.locator("input[value=encoder_self]").check()
        drawn(page)
        assert page.locator("#explorer p.note:visible", has_text="teacher forcing").count() == 0


def merged(weights: np.ndarray, queries: list[list[int]], keys: list[list[int]]) -> np.ndarray:
    """Weights of words, in loops: summed over the pieces of a key, averaged over those of a query."""
    return np.array(
        [
            [sum(weights[i][j] for i in rows for j in columns) / len(rows) for columns in keys]
            for rows in queries
        ]
    )


def test_words_are_sums_over_keys_and_means_over_queries(browser, report):
    """The words of WORDS are 0, 1–2, 3, 4–5, and </s> 5 in the source of six tokens."""
    ours, source = report[0][0], [[0], [1, 2], [3], [4], [5]]
    assert (ours.maps[0].source, ours.maps[0].target) == ([*WORDS[:5], "</s>"], [*WORDS[:4], "</s>"])
    written, read = [[0], [1, 2], [3], [4]], [[0], [1], [2, 3], [4]]
    sides = {
        "encoder_self": (source, source),
        "decoder_self": (written, read),
        "decoder_context": (written, source),
    }
    with opened(browser, report[1], "#explorer?attention=encoder_self&head=1.2&words=1") as page:
        panel = page.locator(".explorer-panel").nth(0)
        assert page.get_by_label("words, not pieces").is_checked()
        for kind, (queries, keys) in sides.items():
            page.locator(f"#explorer input[value={kind}]").check()
            drawn(page)
            panel.get_by_role("radio", name="layer 1, head 2,").click()
            expected = merged(ours.maps[0].head(kind, 1, 2), queries, keys)
            assert np.abs(shown_map(panel) - expected).max() < 0.01
        rows = panel.locator(".matrix .token").all_text_contents()
        assert rows == ["</s>→ Der", "Der→ Hund", "Hund→ <b>", "<b>→ </s>"]
        panel.locator(".token").nth(1).click()
        assert "words" in panel.locator(".readout p").nth(0).inner_text()
        assert "token=1&words=1" in page.evaluate("location.hash")
        page.get_by_label("words, not pieces").uncheck()
        drawn(page)
        assert panel.locator(".token[aria-pressed=true]").inner_text().startswith("Der")
        assert "words" not in page.evaluate("location.hash")


@pytest.mark.nightly
def test_sentences_are_found_by_their_words_or_number(browser, report):
    with opened(browser, report[1]) as page:
        select, find = page.get_by_label("Sentence", exact=True), page.locator("#find")
        find.fill("SATZ")
        assert select.input_value() == "1"
        assert "1 of 3 sentences" in page.locator("label[for=find]").inner_text()
        assert page.get_by_label("Next sentence").is_disabled()
        find.fill("schläft")
        assert select.locator("option").count() == 2
        page.get_by_label("Next sentence").click()
        assert select.input_value() == "2"
        find.fill("no such words")
        assert select.input_value() == "2"
        find.fill("1")
        assert select.input_value() == "1"
        find.fill("")
        assert select.locator("option").count() == 3


def saved(page, button) -> bytes:
    """The file that a button saves."""
    with page.expect_download() as waiting:
        button.click()
    return Path(waiting.value.path()).read_bytes()


@pytest.mark.nightly
def test_figures_and_tables_are_saved_as_files(browser, report):
    models, path = report
    with opened(browser, path, "#explorer?sentence=1&attention=decoder_context&head=1.2") as page:
        for section in ("alphas", "densities", "diversity", "trajectories", "layers"):
            button = page.locator(f"#{section} button", has_text=re.compile("^SVG$")).nth(0)
            root = ElementTree.fromstring(saved(page, button))
            assert len(root.findall("{*}svg")) >= 3
            assert not any("class" in element.attrib for element in root.iter())
        lines = [line for line in root.findall(".//{*}path") if line.get("stroke", "none") != "none"]
        assert lines, "the style sheet's colours are missing"
        png = saved(page, page.get_by_role("button", name=re.compile("^Save learned α as PNG$")))
        size = struct.unpack(">II", png[16:24])
        assert png[:4] == b"\x89PNG" and size[0] == 2 * (3 * 424 + 24)

        panel = page.locator(".explorer-panel").nth(0)
        weights = models[0].maps[1].head("decoder_context", 1, 2)
        for kind, separator in (("CSV", ","), ("TSV", "\t")):
            text = saved(page, panel.get_by_role("button", name=re.compile(f"as {kind}$"))).decode()
            head, *rows = csv.reader(io.StringIO(text), delimiter=separator)
            assert head[:2] == ["query", "Der"] and rows[0][0] == "</s> → Der"
            values = np.array([[float(value) for value in row[1:]] for row in rows])
            assert np.abs(values - weights).max() < 0.01 and ((values == 0) == (weights == 0)).all()
        drawn_map = ElementTree.fromstring(
            saved(page, panel.get_by_role("button", name=re.compile("as SVG$")))
        )
        fills = [rect.get("fill") for rect in drawn_map.findall("{*}rect")[1:]]
        assert [fill == "none" for fill in fills] == (weights == 0).ravel().tolist()

        page.locator("#heads summary").nth(0).click()
        text = saved(page, page.get_by_role("button", name="Save Every head of ours as CSV")).decode()
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [float(row["density"]) for row in rows] == [
            pytest.approx(row["density"], abs=6e-5) for row in models[0].statistics["heads"]
        ]


def test_everything_is_visible_on_a_phone(browser, report):
    with opened(browser, report[1], width=390) as page:
        page.locator("#heads summary").nth(0).click()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        # Wide content scrolls in its own frame; all controls are inside the window.
        for control in page.locator("#explorer").locator("select, .step, .joined label, .thumb").all():
            box = control.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_scales_of_alpha_are_equal_and_updates_after_the_checkpoint_are_marked(browser, tmp_path):
    models = []
    for name, update in (("early", 200), ("last", 400)):
        analysis = model(tmp_path, name, seed=update)
        models.append(replace(analysis, statistics={**analysis.statistics, "update": update}))
    write_report(models, tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        charts = page.locator("#trajectories .chart")
        scales = charts.evaluate_all(
            "charts => charts.map(chart => [...chart.querySelectorAll('[text-anchor=end]:not(.beyond *)')]"
            ".map(text => text.textContent + text.getAttribute('y')).join())"
        )
        assert len(scales) == 6 and len(set(scales)) == 1
        assert page.locator(".beyond").count() == 3, "only the early checkpoint has α's after it"
        middle = float(page.locator(".beyond line").nth(0).get_attribute("x1"))
        assert middle == pytest.approx((54 + 400 - 12) / 2)
        (note,) = page.locator("#trajectories .note").all_text_contents()
        assert "trained up to update 200" in note
        charts.nth(0).focus()
        page.keyboard.press("ArrowUp")
        said = page.locator("#trajectories [role=status]").nth(0).inner_text()
        assert said.endswith("at update 400, after the checkpoint")
        headers = page.locator("#models .card").nth(0).locator("thead th").all_text_contents()
        assert headers == ["attention", "heads", "min α", "mean α", "max α", "mean density"]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_rules_hold(browser, report, scheme):
    """axe-core: names, roles, contrast, focus order etc., by WCAG and its best practices."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    with opened(browser, report[1], color_scheme=scheme) as page:
        page.wait_for_selector(".matrix", state="attached")
        page.locator("#heads summary").nth(0).click()
        violations = axe.Axe().run(page).response["violations"]
        assert [(violation["id"], violation["nodes"][0]["html"]) for violation in violations] == []
