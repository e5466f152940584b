/** Names of tables and columns as SQL writes them. */

export function quoted(name: string): string {
  return /^[A-Za-z][A-Za-z0-9_]*$/.test(name) ? name : `\`${name.replace(/`/g, "``")}\``;
}

/** Returns the name of a table, `catalog.schema.table`, with each part quoted if it needs to be. */
export function quotedName(name: string): string {
  return name.split(".").map(quoted).join(".");
}
