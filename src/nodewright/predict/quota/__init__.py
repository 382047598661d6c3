"""Manifests under ResourceQuotas and LimitRanges: what is charged, refused, and what would fit."""
