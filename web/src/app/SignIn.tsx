import { useState } from "preact/hooks";
import { asError } from "../api/errors";
import { signIn } from "../api/session";
import { Button } from "../components/Button";
import { TextField } from "../components/Field";
import { useTitle } from "./title";

/** Where tokens are set: the page that asks for one. The token goes to the server once, which sets a cookie. */
export function SignIn() {
  const [token, setToken] = useState("");
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  useTitle("Sign in");
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(token);
    } catch (thrown) {
      setError(asError(thrown).message);
      setBusy(false);
    }
  };
  return (
    <main id="main" class="sign-in">
      <form onSubmit={submit}>
        <h1>Sign in to Crannog</h1>
        <p>
          This server needs a token. Whoever runs it makes one with <code>crannog token create NAME --scope read</code>.
        </p>
        {/* For managers of passwords, which keep one by a name. */}
        <input type="text" name="username" autocomplete="username" value="crannog" readOnly hidden />
        <TextField
          label="Token"
          type="password"
          autocomplete="current-password"
          placeholder="crannog_…"
          value={token}
          onInput={setToken}
          error={error}
          required
        />
        <Button kind="primary" type="submit" busy={busy} disabled={!token.trim()}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
