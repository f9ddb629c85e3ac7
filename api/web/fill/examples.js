// Sentences to begin with, in the language of the model as far as its name tells it; {mask} becomes this model's token.

const CHINESE = [
  { kind: "idiom", text: "守株{mask}兔" },
  { kind: "poem", text: "床前明月光，疑是地{mask}霜。" },
  { kind: "sense", text: "中国的首都是北{mask}，春天的天{mask}很暖和。" },
  { kind: "proofreading", text: "我{mask}今天去公园玩。", targets: "们 门" },
];

const ENGLISH = [
  { kind: "sense", text: "The capital of France is {mask}." },
  { kind: "proofreading", text: "I have {mask} this book before.", targets: "read red" },
];

/** The poem comes first: it is what the page opens with. */
export function examplesFor(model) {
  const chinese = /zh|chinese|hfl|macbert|wwm/i.test(model);
  return chinese ? CHINESE : [...ENGLISH, ...CHINESE];
}
