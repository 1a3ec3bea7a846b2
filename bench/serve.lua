-- wrk's side of bench/serve.py: the bodies of a file by turns; with DELAY, a pause before each request;
-- with COUNT, every answer is looked at. What was found is printed as JSON.
local bodies, at, threads = {}, 0, {}
for line in io.lines(os.getenv("BODIES")) do bodies[#bodies + 1] = line end
local pause = tonumber(os.getenv("DELAY") or "0")
answered, refused, without_time, other = 0, 0, 0, 0

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

function setup(thread) threads[#threads + 1] = thread end

function init(args) math.randomseed(os.time()) end

function request()
  at = at % #bodies + 1
  return wrk.format(nil, "/predict", nil, bodies[at])
end

-- Pauses of random length, so that requests do not come in step.
if pause > 0 then
  function delay() return math.floor(2 * pause * math.random() + 0.5) end
end

if os.getenv("COUNT") then
  function response(status, headers, body)
    if status == 200 and body:find('{"predictions":[{"labels":[', 1, true) == 1 then answered = answered + 1
    elseif status ~= 503 then other = other + 1
    elseif headers["retry-after"] then refused = refused + 1
    else without_time = without_time + 1 end
  end
end

function done(summary, latency, requests)
  local sums = { answered = 0, refused = 0, without_time = 0, other = 0 }
  for _, thread in ipairs(threads) do
    for name in pairs(sums) do sums[name] = sums[name] + thread:get(name) end
  end
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p99_ms": %.4f, "not_2xx": %d, ' ..
    '"connect_errors": %d, "read_errors": %d, "write_errors": %d, "timeouts": %d, ' ..
    '"answered": %d, "refused": %d, "refused_without_time": %d, "other": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect, errors.read, errors.write, errors.timeout,
    sums.answered, sums.refused, sums.without_time, sums.other))
end
