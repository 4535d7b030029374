"""Pages to try a trained model: what they compute, a file for each sort, and how they are laid out.

Only `layout` needs gradio. A request that cannot be answered raises ValueError; its sentence is
shown on the page.
"""
