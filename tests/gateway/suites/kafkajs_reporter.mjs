// Writes a line of JSON for each test that ends: a reporter of Node's test runner.

export default async function* reporter(events) {
  for await (const { type, data } of events) {
    const isEnd = type === "test:pass" || type === "test:fail"
    if (!isEnd || data.details.type === "suite" || data.name.endsWith(".mjs")) continue
    const error = data.details.error?.cause ?? data.details.error
    const reason = error === undefined ? "" : String(error.stack ?? error)
    yield `${JSON.stringify({ test: data.name, passed: type === "test:pass", reason })}\n`
  }
}
