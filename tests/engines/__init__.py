"""From metrics pages to samples."""
