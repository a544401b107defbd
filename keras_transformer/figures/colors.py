"""Colors of figures and pages."""

import math

INK = "#1a1a1a"  # text and axes on white
# Legible on white and on black.
COLORS = ("#3987e5", "#e07b39", "#3aa17e", "#b565c9")


def head_color(head: int, num_heads: int, dark: bool = False) -> str:
    """Chooses the color of a head, on white or on the page's dark background.

    All heads have the same lightness in OKLCH (Ottosson 2020), a perceptual
    color space, so each has a contrast of at least 3:1 (WCAG 2) to either
    background. In HSL, yellow and cyan would have less than 2:1 on white.

    >>> head_color(0, 8), head_color(0, 8, dark=True)
    ('#b85377', '#eb85a6')
    """
    lightness, chroma = (0.735, 0.13) if dark else (0.58, 0.135)
    angle = 2 * math.pi * head / num_heads
    a, b = chroma * math.cos(angle), chroma * math.sin(angle)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    return "#" + "".join(f"{_channel(value):02x}" for value in linear)


def _channel(linear):
    """Turns a linear intensity into an sRGB value, 0 to 255."""
    linear = min(1.0, max(0.0, linear))
    if linear <= 0.0031308:
        return round(255 * 12.92 * linear)
    return round(255 * (1.055 * linear ** (1 / 2.4) - 0.055))
