"""The Russian translation is whole: every string of the front end has one, and nothing else has."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from strings import strings

FILE = ROOT / "j2c_lab" / "locale" / "ru_RU" / "LC_MESSAGES" / "j2c_lab.json"
TRANSLATED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
#: Those that other texts already have in Lab, in its own domain.
FOREIGN = {"Other"}


def test_every_string_has_a_translation_and_every_translation_a_string() -> None:
    wanted = set(strings()) - FOREIGN
    have = {key for key in TRANSLATED if key and not key.startswith("schema\x04")}
    assert wanted - have == set()
    assert have - wanted == set()


def test_plurals_have_all_four_forms_and_others_one() -> None:
    for singular, plural in strings().items():
        if singular not in FOREIGN:
            assert len(TRANSLATED[singular]) == (1 if plural is None else 4), singular


def test_translations_keep_what_is_filled_in() -> None:
    for key, forms in TRANSLATED.items():
        if key:
            for form in forms:
                assert sorted(re.findall(r"%\d", form)) == sorted(re.findall(r"%\d", key)), key


def test_the_settings_texts_are_translated_too() -> None:
    schema = json.loads((ROOT / "labextension/schema/plugin.json").read_text(encoding="utf-8"))
    texts = {schema["title"], schema["description"]}
    for setting in schema["properties"].values():
        texts |= {setting["title"], setting["description"]}
    assert {f"schema\x04{text}" for text in texts} == {k for k in TRANSLATED if "\x04" in k}
