// Asks the service at argv[2] through @huggingface/inference and prints what its user would see, as one JSON object.
import { fillMask, InferenceClient } from "@huggingface/inference";

const endpointUrl = process.argv[2];
const poem = "床前明月光，疑是地[MASK]霜。";

async function refusal(asked) {
  try {
    await fillMask(asked, { retry_on_error: false });
  } catch (error) {
    return { message: error.message, status: error.httpResponse?.status };
  }
  return null;
}

console.log(
  JSON.stringify({
    one: await fillMask({ inputs: poem, endpointUrl }),
    two: await new InferenceClient().endpoint(endpointUrl).fillMask({ inputs: poem, parameters: { top_k: 2 } }),
    targets: await fillMask({ inputs: poem, endpointUrl, parameters: { targets: ["上", "下"] } }),
    noMask: await refusal({ inputs: "床前明月光", endpointUrl }),
    severalMasks: await refusal({ inputs: "今天[MASK][MASK]很好", endpointUrl }),
  }),
);
