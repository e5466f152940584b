/** What the server says when it refuses or fails: one shape for all routes. */

import { parseJson } from "./json";

/** An error of the server, or of the way to it. `message` says what to do next. */
export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly status: number,
    readonly retryAfterS: number | null = null,
    readonly requestId: string | null = null,
  ) {
    super(message);
    this.name = "ApiError";
  }

  /** Whether signing in may help. */
  get needsSignIn(): boolean {
    return this.status === 401;
  }
}

/** Makes the error of an answer that is not a success. */
export async function errorOf(response: Response): Promise<ApiError> {
  const requestId = response.headers.get("x-request-id");
  const text = await response.text().catch((thrown: unknown) => {
    // Whoever gave the request up, perhaps after the first bytes of the answer, wants no other error than that.
    if (isAbort(thrown)) throw thrown;
    return "";
  });
  try {
    const found = (parseJson(text) as { error: { code: string; message: string; retry_after_s: number | null } }).error;
    return new ApiError(found.code, found.message, response.status, found.retry_after_s, requestId);
  } catch {
    const message = `The server answered ${response.status} ${response.statusText}. If a proxy is in between, look at its log.`;
    return new ApiError("unknown", message, response.status, null, requestId);
  }
}

/** Makes an error that a page can show of whatever was thrown. */
export function asError(thrown: unknown): ApiError {
  if (thrown instanceof ApiError) return thrown;
  if (thrown instanceof TypeError && /fetch|network|load failed/i.test(thrown.message)) {
    return new ApiError("unreachable", "The server does not answer. Check that it runs, then try again.", 0);
  }
  return new ApiError("page", thrown instanceof Error ? thrown.message : String(thrown), 0);
}

/** Whether something was thrown only because the caller gave up. */
export function isAbort(thrown: unknown): boolean {
  return thrown instanceof DOMException && thrown.name === "AbortError";
}
