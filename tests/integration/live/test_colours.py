# SPDX-License-Identifier: Apache-2.0
"""The colours of frame types: any two can be distinguished with every kind of colour blindness, and the names on them are
readable.

Simulation of colour blindness: Machado, Oliveira, Fernandes 2009, "A Physiologically-based Model for Simulation of Color
Vision Deficiency", table 1, severity 1.0. Distance of two colours: CIEDE2000 (ISO/CIE 11664-6). Contrast: WCAG."""
import itertools
import math
import os
import re

ROOT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "..")
SEEN_BY = {
    "everybody": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopes": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopes": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopes": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
APART = 10


def colours():
    with open(os.path.join(ROOT, "web", "flame.js"), encoding="utf-8") as f:
        text = f.read()
    table = re.search(r"const COLOURS = \{(.*?)\};", text, re.S).group(1)
    found = {name.strip('"'): colour for name, colour in re.findall(r'([\w"-]+): "(#[0-9a-f]{6})"', table)}
    found["group"] = re.search(r'GROUP_COLOUR = "(#[0-9a-f]{6})"', text).group(1)
    assert len(found) == 15
    return found


def linear(colour):
    parts = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def lab(rgb):
    def f(t):
        return t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116
    r, g, b = rgb
    x = f((0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047)
    y = f(0.2126729 * r + 0.7151522 * g + 0.0721750 * b)
    z = f((0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(colour, matrix):
    rgb = linear(colour)
    return lab([min(max(sum(m * c for m, c in zip(row, rgb)), 0), 1) for row in matrix])


def apart(one, other):
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = 1.5 - 0.5 * math.sqrt(mean ** 7 / (mean ** 7 + 25 ** 7))
    c1, c2 = math.hypot(g * a1, b1), math.hypot(g * a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, g * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180
    hue = h1 + turn / 2
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    t = (1 - 0.17 * math.cos(math.radians(hue - 30)) + 0.24 * math.cos(math.radians(2 * hue))
         + 0.32 * math.cos(math.radians(3 * hue + 6)) - 0.20 * math.cos(math.radians(4 * hue - 63)))
    dl = (l2 - l1) / (1 + 0.015 * (lightness - 50) ** 2 / math.sqrt(20 + (lightness - 50) ** 2))
    dc = (c2 - c1) / (1 + 0.045 * chroma)
    dh = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2)) / (1 + 0.015 * chroma * t)
    rotation = (-2 * math.sqrt(chroma ** 7 / (chroma ** 7 + 25 ** 7))
                * math.sin(math.radians(60 * math.exp(-((hue % 360 - 275) / 25) ** 2))))
    return math.sqrt(dl ** 2 + dc ** 2 + dh ** 2 + rotation * dc * dh)


def test_distances_are_those_of_the_standard():
    # Pairs 1, 9 and 17 of Sharma, Wu, Dalal 2005, "The CIEDE2000 Color-Difference Formula", table 1.
    for one, other, want in (((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
                             ((50, 2.49, -0.001), (50, -2.49, 0.0009), 7.1792),
                             ((50, 2.5, 0), (73, 25, -18), 27.1492)):
        assert abs(apart(one, other) - want) < 0.0001


def test_every_two_frame_types_can_be_told_apart():
    found, close = colours(), []
    for who, matrix in SEEN_BY.items():
        for (a, x), (b, y) in itertools.combinations(found.items(), 2):
            distance = apart(seen(x, matrix), seen(y, matrix))
            if distance < APART:
                close.append((round(distance, 1), who, a, b))
    assert not close


def luminance(colour):
    r, g, b = linear(colour)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_names_can_be_read_on_them():
    """The contrast suffices for every shade too: a frame's colour is made a little darker or lighter by its name."""
    with open(os.path.join(ROOT, "web", "flame.js"), encoding="utf-8") as f:
        text = f.read()
    darkest, lightest = map(float, re.search(r"DARKEST = ([\d.]+), LIGHTEST = ([\d.]+)", text).groups())
    turn, white, black = re.search(r'< ([\d.]+) \? "(#\w+)" : "(#\w+)"', text).groups()
    assert darkest < 1 < lightest
    bad = []
    for name, colour in colours().items():
        for step in range(-1, 101):
            factor = 1 if step < 0 else darkest + step / 100 * (lightest - darkest)
            shaded = "#" + "".join(f"{min(255, math.floor(int(colour[i:i + 2], 16) * factor + 0.5)):02x}" for i in (1, 3, 5))
            back = luminance(shaded)
            ink = luminance(white if back < float(turn) else black)
            contrast = (max(ink, back) + 0.05) / (min(ink, back) + 0.05)
            if contrast < 4.5:
                bad.append((name, shaded, round(contrast, 2)))
    assert not bad
