"""The front-end: HTTP in, words out. It tokenises, queues, waits, and never loads a model. Imports api and common."""
