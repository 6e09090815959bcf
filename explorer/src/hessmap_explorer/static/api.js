// Questions to the server: answers as JSON, refusals as the sentence that the server said.

async function answered(response) {
  const isJson = (response.headers.get("content-type") || "").includes("json");
  const content = isJson ? await response.json() : await response.text();
  if (response.ok) return content;
  throw new Error(isJson ? content.error : content);
}

async function asked(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The explorer must be running; it does not answer. Start hessmap serve again and open its new link.");
  }
}

export const get = async (path, signal) => answered(await asked(path, { signal }));

export const post = async (path, body) =>
  answered(await asked(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }));

export const sleep = (milliseconds, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, milliseconds);
  signal?.addEventListener("abort", () => { clearTimeout(timer); reject(new DOMException("left", "AbortError")); }, { once: true });
});
