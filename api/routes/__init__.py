"""One file a dialect of HTTP. Each route is a recipe: encode, predict, words; the logic lives one room further."""
