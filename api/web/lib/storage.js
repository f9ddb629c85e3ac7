// localStorage and sessionStorage, where the browser lets us have them; else what is kept lasts as long as the page.

export function storage(name) {
  try {
    return window[name];
  } catch {
    const kept = new Map();
    return {
      getItem: (key) => kept.get(key) ?? null,
      setItem: (key, value) => kept.set(key, value),
      removeItem: (key) => kept.delete(key),
    };
  }
}
