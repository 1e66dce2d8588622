"""Figures: the data of a chart as a value, then the chart as Vega-Lite."""
