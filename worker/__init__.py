"""The worker: token ids in, probabilities out. It never sees text and never speaks HTTP. Imports worker and common."""
