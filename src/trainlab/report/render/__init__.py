"""Renderers: one document as HTML, Markdown and PDF."""
