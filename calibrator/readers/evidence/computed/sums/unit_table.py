"""The units that people convert, with their names in English, German, Spanish and French."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Final


@dataclass(frozen=True, slots=True)
class MeasureUnit:
    """A unit: `size` is its size in the dimension's base unit, `zero` its zero point there.

    `zero` is 0 except for scales of temperature.
    """

    name: str
    dimension: str
    size: Fraction
    zero: Fraction = Fraction(0)

    def to_base(self, value: Fraction) -> Fraction:
        """Convert a value to the base unit of the dimension."""
        return value * self.size + self.zero

    def from_base(self, value: Fraction) -> Fraction:
        """Convert a value of the base unit to this unit."""
        return (value - self.zero) / self.size


# Each line: dimension | size in the base unit | names, of which the first is shown.
# Sizes are exact by definition (NIST Special Publication 811, appendix B).
_TABLE: Final = """
length | 1 | metres, metre, meters, meter, m, metros, metro, mètres, mètre
length | 1000 | kilometres, kilometre, kilometers, kilometer, km, kms, kilómetros, kilómetro, kilomètres, kilomètre
length | 1/100 | centimetres, centimetre, centimeters, centimeter, cm, zentimeter, centímetros, centímetro, centimètres, centimètre
length | 1/1000 | millimetres, millimetre, millimeters, millimeter, mm, milímetros, milímetro, millimètres, millimètre
length | 1/10 | decimetres, decimetre, decimeters, decimeter, dm
length | 1/1000000 | micrometres, micrometre, micrometers, micrometer, µm, μm, microns, micron
length | 1/1000000000 | nanometres, nanometre, nanometers, nanometer, nm
length | 1609.344 | miles, mile, mi, meilen, meile, millas, milla
length | 0.9144 | yards, yard, yd, yds, yardas
length | 0.3048 | feet, foot, ft, fuß, fuss, pies, pie, pieds, pied
length | 0.0254 | inches, inch, in, zoll, pulgadas, pulgada, pouces, pouce
length | 1852 | nautical miles, nautical mile, nmi, seemeilen, seemeile
length | 201.168 | furlongs, furlong
length | 1.8288 | fathoms, fathom
length | 9460730472580800 | light years, light year, light-years, light-year
mass | 1 | kilograms, kilogram, kilogrammes, kg, kgs, kilos, kilo, kilogramm, kilogramos, kilogramo, kilogramme
mass | 1/1000 | grams, gram, g, grammes, gramme, gramm, gramos, gramo
mass | 1/1000000 | milligrams, milligram, mg, milligramm, miligramos, milligrammes
mass | 1/1000000000 | micrograms, microgram, µg, μg, mcg
mass | 1000 | tonnes, tonne, metric tons, metric ton, t, tonnen, toneladas, tonelada
mass | 907.18474 | short tons, short ton, us tons, us ton
mass | 0.45359237 | pounds, pound, lbs, lb, libras, libra, livres
mass | 0.028349523125 | ounces, ounce, oz, unzen, unze, onzas, onza, onces
mass | 6.35029318 | stone, stones
volume | 1 | litres, litre, liters, liter, l, litros, litro
volume | 1/1000 | millilitres, millilitre, milliliters, milliliter, ml, mililitros, cubic centimetres, cubic centimeters, cc, cm³, cm^3
volume | 1/100 | centilitres, centilitre, centiliters, centiliter, cl
volume | 1/10 | decilitres, decilitre, deciliters, deciliter, dl
volume | 1000 | cubic metres, cubic metre, cubic meters, cubic meter, m³, m^3, kubikmeter, metros cúbicos, mètres cubes
volume | 3.785411784 | gallons, gallon, gal, us gallons, us gallon, gallonen, galones
volume | 4.54609 | imperial gallons, imperial gallon, uk gallons, uk gallon
volume | 0.946352946 | quarts, quart, qt
volume | 0.473176473 | pints, pint, us pints, us pint
volume | 0.56826125 | imperial pints, imperial pint, uk pints, british pints
volume | 0.2365882365 | cups, cup, us cups
volume | 0.01478676478125 | tablespoons, tablespoon, tbsp, tbsps
volume | 0.00492892159375 | teaspoons, teaspoon, tsp, tsps
volume | 0.0295735295625 | fluid ounces, fluid ounce, fl oz, fl. oz.
area | 1 | square metres, square metre, square meters, square meter, m², m^2, sqm, sq m, quadratmeter, metros cuadrados, mètres carrés
area | 1000000 | square kilometres, square kilometre, square kilometers, square kilometer, km², km^2, quadratkilometer
area | 1/10000 | square centimetres, square centimeters, square centimeter, cm², cm^2, quadratzentimeter
area | 10000 | hectares, hectare, ha, hektar
area | 4046.8564224 | acres, acre
area | 0.09290304 | square feet, square foot, sq ft, ft², ft^2, sqft
area | 0.00064516 | square inches, square inch, sq in, in²
area | 2589988.110336 | square miles, square mile, sq mi, mi²
area | 0.83612736 | square yards, square yard, sq yd
time | 1 | seconds, second, s, sec, secs, sekunden, sekunde, segundos, segundo, secondes, seconde
time | 60 | minutes, minute, min, mins, minuten, minutos, minuto
time | 3600 | hours, hour, h, hr, hrs, stunden, stunde, horas, hora, heures, heure
time | 86400 | days, day, d, tage, tag, tagen, días, día, jours, jour
time | 604800 | weeks, week, wk, wochen, woche, semanas, semana, semaines, semaine
time | 1/1000 | milliseconds, millisecond, ms, millisekunden, milisegundos, millisecondes
time | 1/1000000 | microseconds, microsecond, µs, μs
time | 1/1000000000 | nanoseconds, nanosecond, ns
speed | 1 | metres per second, meters per second, metre per second, meter per second, m/s, mps
speed | 5/18 | kilometres per hour, kilometers per hour, kilometre per hour, kilometer per hour, km/h, kph, kmh, kmph, stundenkilometer
speed | 0.44704 | miles per hour, mile per hour, mph, mi/h
speed | 463/900 | knots, knot, kn, kt, knoten
speed | 0.3048 | feet per second, ft/s
data | 1 | bytes, byte, b
data | 1/8 | bits, bit
energy | 1 | joules, joule, j
energy | 1000 | kilojoules, kilojoule, kj
energy | 4184 | kilocalories, kilocalorie, kcal
energy | 4.184 | calories, calorie, cal
energy | 3600 | watt hours, watt-hours, watt hour, wh
energy | 3600000 | kilowatt hours, kilowatt-hours, kilowatt hour, kilowatt-hour, kwh
power | 1 | watts, watt, w
power | 1000 | kilowatts, kilowatt, kw
power | 1000000 | megawatts, megawatt, mw
power | 745.69987158227022 | horsepower, hp, horse power
pressure | 1 | pascals, pascal, pa
pressure | 1000 | kilopascals, kilopascal, kpa
pressure | 100000 | bars, bar
pressure | 101325 | atmospheres, atmosphere, atm
pressure | 6894.757293168361 | psi, pounds per square inch
pressure | 100 | millibars, millibar, mbar, hectopascals, hpa
angle | 1 | degrees of arc, degrees, degree, °, grad
angle | 57.29577951308232 | radians, radian, rad
count | 1 | items, pieces, stück
count | 12 | dozens, dozen, dutzend
count | 20 | scores of items
"""
_LARGE_DATA: Final = (
    ("kilobytes kilobyte kb", 1), ("megabytes megabyte mb", 2), ("gigabytes gigabyte gb", 3),
    ("terabytes terabyte tb", 4), ("petabytes petabyte pb", 5),
)  # fmt: skip
_BINARY_DATA: Final = (
    ("kibibytes kibibyte kib", 1), ("mebibytes mebibyte mib", 2), ("gibibytes gibibyte gib", 3),
    ("tebibytes tebibyte tib", 4),
)  # fmt: skip


@cache
def units() -> dict[str, MeasureUnit]:
    """Return the units by each of their names in lower case, such as `km`. Computed once."""
    table: dict[str, MeasureUnit] = {}
    for line in _TABLE.strip().splitlines():
        dimension, size, names = (part.strip() for part in line.split("|"))
        spellings = [name.strip() for name in names.split(",")]
        unit = MeasureUnit(spellings[0], dimension, Fraction(size))
        for name in spellings:
            table[name] = unit
    _add_temperatures(table)
    for names, power in _LARGE_DATA:
        _add(table, names, "data", Fraction(1000**power))
    for names, power in _BINARY_DATA:
        _add(table, names, "data", Fraction(1024**power))
    for names, power in (
        ("kilobits kilobit kbit", 1),
        ("megabits megabit mbit", 2),
        ("gigabits gigabit gbit", 3),
    ):
        _add(table, names, "data", Fraction(1000**power, 8))
    return table


def _add(table: dict[str, MeasureUnit], names: str, dimension: str, size: Fraction) -> None:
    """Add units of one size under each of the names, in place."""
    spellings = names.split()
    for name in spellings:
        table[name] = MeasureUnit(spellings[0], dimension, size)


def _add_temperatures(table: dict[str, MeasureUnit]) -> None:
    """Add the scales of temperature to the table, in place; their base is kelvin."""
    celsius = MeasureUnit("°C", "temperature", Fraction(1), Fraction("273.15"))
    fahrenheit = MeasureUnit(
        "°F", "temperature", Fraction(5, 9), Fraction("273.15") - Fraction(160, 9)
    )
    kelvin = MeasureUnit("kelvin", "temperature", Fraction(1))
    for names, unit in (
        (
            "celsius|°c|º c|ºc|c|centigrade|degrees celsius|degrees c"
            "|degree celsius|deg c|grad celsius|grados celsius|grados centígrados|degrés celsius|°"
            " celsius|° c|degrees centigrade",
            celsius,
        ),
        (
            "fahrenheit|°f|ºf|f|degrees fahrenheit|degrees f|degree"
            " fahrenheit|deg f|grad fahrenheit|grados fahrenheit|degrés fahrenheit|° fahrenheit|°"
            " f",
            fahrenheit,
        ),
        ("kelvin|kelvins|k|degrees kelvin", kelvin),
    ):
        for name in names.split("|"):
            table[name] = unit
