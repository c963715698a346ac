"""Explains where a SharePod or pod is, or why it is pending."""
