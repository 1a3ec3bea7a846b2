"""Figures as people read them: short, with their units."""


def amount(number: float, unit: str) -> str:
    """A number with its unit, short.

    >>> amount(1_234_567_890, "B"), amount(43_273, "rows"), amount(7, "partitions")
    ('1.2 GB', '43.3 k rows', '7 partitions')
    """
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            gap = "" if unit == "B" else " "
            return f"{number / size:.1f} {prefix}{gap}{unit}"
    return f"{number:.0f} {unit}"


def money(value: float, currency: str) -> str:
    """An amount of money, with as many decimals as show something.

    >>> money(1234.5, "USD"), money(0.0123, "EUR"), money(0.000021, "USD")
    ('1,234.50 USD', '0.0123 EUR', '0.000021 USD')
    """
    decimals = 2 if value >= 1 or value == 0 else 4 if value >= 0.001 else 6
    return f"{value:,.{decimals}f} {currency}"


def duration(seconds: float) -> str:
    """Seconds, with as many decimals as are worth reading.

    >>> duration(0.66), duration(83.21), duration(12345.6)
    ('0.66 s', '83.2 s', '12,346 s')
    """
    return f"{seconds:,.{decimals_of(seconds)}f} s"


def decimals_of(seconds: float) -> int:
    return 2 if seconds < 10 else 1 if seconds < 1000 else 0
