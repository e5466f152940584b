import { render } from "preact";
import { asError } from "./api/errors";
import { loadSession } from "./api/session";
import { App } from "./app/App";
import { startKeys } from "./app/keys";
import { startRouter } from "./app/router";
import { ErrorBox } from "./components/States";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/components.css";

const element = document.getElementById("app")!;
startRouter();
startKeys();
render(<App />, element);
loadSession().catch((thrown: unknown) =>
  render(<ErrorBox error={asError(thrown)} retry={() => location.reload()} />, element),
);
