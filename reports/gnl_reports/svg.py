"""Matplotlib's SVG made fit for a page: no styles, no metadata, no outside names, colours from the page's theme."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from gnl_reports.text import Html, plain

_DROPPED = frozenset({"metadata", "style", "title"})
_REFERENCE = re.compile(r"(?<=url\(#)[^)]+|(?<=^#)[^;]+")
"""An id as it stands in url(#id), or in a whole value #id, which a link is and a colour may be."""
_FONT_SIZE = re.compile(r"([\d.]+)px")


def themed(source: str, *, key: str, title: str, description: str, colours: Mapping[str, str]) -> Html:
    """Return an inline SVG that needs no style attribute and answers to the page's colours.

    Style attributes would be refused by the page's Content-Security-Policy, so each declaration becomes a presentation
    attribute. Ids are renumbered under `key`, so that several drawings fit on one page and the output is the same in
    every run.

    Args:
        source: What Matplotlib wrote.
        key: Prefix of every id, unique on the page.
        title: Name of the drawing for those who do not see it.
        description: What it shows, in words.
        colours: CSS value by the hexadecimal colour that was drawn with, for instance {'#010101': 'currentColor'}.
    """
    root = ET.fromstring(source)  # noqa: S314 - our own drawing, written a moment ago in this process
    names = _referenced(root, key)
    _clean(root, names, colours)
    view_box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update(
        {"class": "plot", "viewBox": view_box, "role": "img", "aria-labelledby": f"{key}-title {key}-desc"}
    )
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ET.Element(tag, {"id": f"{key}-{tag}"})
        element.text = plain(text)
        root.insert(place, element)
    return Html(ET.tostring(root, encoding="unicode", short_empty_elements=False))


def _referenced(root: ET.Element, key: str) -> dict[str, str]:
    """Return the new id of every id that something points to, in order of first use."""
    names: dict[str, str] = {}
    for element in root.iter():
        for name, value in element.attrib.items():
            if name.endswith("href") or "url(" in value:
                for old in _REFERENCE.findall(value):
                    names.setdefault(old, f"{key}-{len(names)}")
    return names


def _clean(element: ET.Element, names: Mapping[str, str], colours: Mapping[str, str]) -> None:
    element.tag = _local(element.tag)
    for child in list(element):
        if _local(child.tag) in _DROPPED:
            element.remove(child)
        else:
            _clean(child, names, colours)
    attributes = {_local(name): value for name, value in element.attrib.items()}
    attributes |= _declarations(attributes.pop("style", ""))
    if (old := attributes.pop("id", "")) in names:
        attributes["id"] = names[old]
    element.attrib.clear()
    for name, value in attributes.items():
        renamed = _REFERENCE.sub(lambda match: names.get(match[0], match[0]), value)
        element.set(name, colours.get(value, renamed))


def _declarations(style: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for declaration in filter(None, (part.strip() for part in style.split(";"))):
        name, _, value = (piece.strip() for piece in declaration.partition(":"))
        if name == "font" and (size := _FONT_SIZE.search(value)):
            found["font-size"] = size[1]
        elif not name.startswith("font"):  # the page's own typeface is wanted, not the one measured with
            found[name] = value
        elif name == "font-size":
            found[name] = value.removesuffix("px")
    return found


def _local(name: str) -> str:
    return name.rpartition("}")[2]
