"""Why a job waits: reasons as data, and as sentences."""
