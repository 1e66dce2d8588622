"""Analysis: records in, values out. Reads run folders only; never imports torch."""
