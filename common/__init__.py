"""What front-ends and workers agree on: messages, Redis keys, model facts, errors. Imports no other part."""
