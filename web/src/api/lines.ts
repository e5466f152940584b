/** Yields the lines of a stream of text as they come, without empty ones. */
export async function* lines(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = stream.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop() ?? "";
      for (const part of parts) if (part.trim()) yield part;
    }
    if (rest.trim()) yield rest;
  } finally {
    // Ends the request when the caller stops reading.
    await reader.cancel().catch(() => {});
  }
}
