"""Programs that stand in for what an image would bring; run as scripts, never imported."""
