"""Small pictures whose reading is not in question."""

from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

DAY = (("08:00 - 12:00", "Pottery class"), ("13:30 - 14:00", "Dentist"))


def picture(*lines: tuple[str, str], heading: str = "2026-11-16") -> bytes:
    """A list of times and titles, as large as a screenshot has them."""
    image = Image.new("RGB", (900, 140 + 110 * len(lines)), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(40)
    draw.text((60, 30), heading, fill="black", font=font)
    for number, (time, title) in enumerate(lines):
        draw.text((60, 130 + 110 * number), time, fill="black", font=font)
        draw.text((420, 130 + 110 * number), title, fill="black", font=font)
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def blank() -> bytes:
    file = BytesIO()
    Image.new("RGB", (400, 300), "white").save(file, "PNG")
    return file.getvalue()
