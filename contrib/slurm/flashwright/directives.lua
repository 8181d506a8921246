-- Directives of a job's script, read as Slurm 22.05 reads them (_xlate_batch and _parse_bb_opts of its plugin burst_buffer/lua), so that
-- Slurm and flashwright cannot understand one line in two ways.

local directives = {}

local DIRECTIVE = "#BB_LUA"
-- Read in slurmctld, which waits. The longest path has 4096 bytes.
local DIRECTIVES_MAX_BYTES = 65536
local SLASH = ("/"):byte()
local POWERS = { [""] = 0, k = 1, m = 2, g = 3, t = 4, p = 5 }
local KEYS = {
	pool = { pool = true, capacity = true },
	stage_in = { source = true, destination = true },
	stage_out = { source = true, destination = true },
	drain = { source = true, destination = true, trigger = true, keep = false, bwlimit = false },
}

-- The lines of a job's script that Slurm takes for directives, as Slurm puts them together.
local function directive_lines(script)
	local file, why = io.open(script, "rb")
	if not file then
		return nil, why
	end
	local lines, continued, bytes = {}, false, 0
	for line in file:lines() do
		if line ~= "" and line:sub(1, 1) ~= "#" then
			break
		end
		if line:sub(1, #DIRECTIVE) == DIRECTIVE then
			bytes = bytes + #line
			if bytes > DIRECTIVES_MAX_BYTES then
				file:close()
				return nil, "more than " .. DIRECTIVES_MAX_BYTES .. " bytes of directives"
			end
			local text = continued and line:sub(#DIRECTIVE + 1) or line
			local joined = text:match("^(.*)\\$")
			lines[#lines + (continued and 0 or 1)] = (continued and lines[#lines] or "") .. (joined or text)
			continued = joined ~= nil
		elseif line ~= "" then
			continued = false
		end
	end
	file:close()
	return lines
end

-- The words of a directive. Double quotes keep blanks; a backslash keeps the character that follows it.
local function words_of(text)
	local words, word, is_quoted, at = {}, nil, false, 1
	while at <= #text do
		local char = text:sub(at, at)
		if char == "\\" then
			at = at + 1
			if at > #text then
				return nil, "ends with a backslash"
			end
			word = (word or "") .. text:sub(at, at)
		elseif char == '"' then
			is_quoted, word = not is_quoted, word or ""
		elseif char == " " and not is_quoted then
			words[#words + 1], word = word, nil
		else
			word = (word or "") .. char
		end
		at = at + 1
	end
	words[#words + 1] = word
	if is_quoted then
		return nil, "a quote is not closed"
	end
	return words
end

-- The bytes of a capacity, by Slurm's own rule: K and KiB are 1024, KB is 1000. nil: Slurm and flashwright might read it differently.
function directives.bytes_of(capacity)
	local number, prefix, suffix = capacity:lower():match("^(%d+)([kmgtp]?)(i?b?)$")
	if not number or #number > 15 or suffix == "i" or prefix == "" and suffix ~= "" then
		return nil
	end
	return tonumber(number) * (suffix == "b" and 1000 or 1024) ^ POWERS[prefix]
end

-- A name in the job's directory, without what the shell of a user would have put before it.
function directives.inner_name(text)
	local name = text:gsub("^%$BB_JOB_DIR/", "")
	-- A pattern would begin anew at each of many slashes.
	local last = #name
	while name:byte(last) == SLASH do
		last = last - 1
	end
	name = name:sub(1, last)
	local is_inner = name ~= "" and name:sub(1, 1) ~= "/" and not ("/" .. name .. "/"):find("/%.%.?/")
	return is_inner and name or nil
end

local function wrong_value(verb, values)
	local inner, outer = values.source, values.destination
	if verb == "pool" then
		if not values.pool:match("^%w[%w_.-]*$") then
			return "pool=" .. values.pool .. ": is not the name of a pool"
		elseif not directives.bytes_of(values.capacity) then
			return "capacity=" .. values.capacity .. ": is not a size, such as 500G or 1500GB"
		end
		return nil
	end
	local inner_key, outer_key = "source", "destination"
	if verb == "stage_in" then
		inner, outer, inner_key, outer_key = outer, inner, outer_key, inner_key
	end
	if not directives.inner_name(inner) then
		return inner_key .. "=" .. inner .. ": is not a name in the job's directory, such as out"
	elseif outer:sub(1, 1) ~= "/" then
		return outer_key .. "=" .. outer .. ": is not an absolute path"
	elseif values.keep and not values.keep:match("^[1-9]%d?%d?%d?$") then
		return "keep=" .. values.keep .. ": is not a number from 1 to 9999"
	elseif values.bwlimit and not values.bwlimit:match("^%d[%d.]*%s*%a*/?s?$") then
		return "bwlimit=" .. values.bwlimit .. ": is not a rate, such as 2GB/s"
	end
	return nil
end

-- One directive: its verb and its values. A verb is the first word without a value, but for `pool=… capacity=…`, which has none.
local function read_directive(line)
	if line:find("%c") then
		return nil, "control characters are not taken"
	end
	local rest = line:sub(#DIRECTIVE + 1)
	local words, why = words_of(rest)
	if not words then
		return nil, why
	end
	local verb = words[1] and words[1]:match("^([^=]*)$")
	local keys = KEYS[verb or "pool"]
	if rest:sub(1, 1) ~= " " or not keys or verb == "pool" then
		return nil, "unknown directive; there are pool=… capacity=…, stage_in, stage_out, drain"
	end
	-- Slurm looks for these two words anywhere in the line, in values as well, and would read a request for room there.
	if verb and line:find("capacity=", 1, true) then
		return nil, "capacity= stands beside pool= only, in no other line"
	end
	local values = {}
	for index = verb and 2 or 1, #words do
		local key, value = words[index]:match("^([%w_]+)=(.*)$")
		if not key or keys[key] == nil then
			return nil, words[index] .. ": unknown key"
		elseif values[key] or value == "" then
			return nil, key .. "= " .. (value == "" and "is empty" or "is there twice")
		end
		values[key] = value
	end
	for key, is_needed in pairs(keys) do
		if is_needed and not values[key] then
			return nil, key .. "= is missing"
		end
	end
	verb = verb or "pool"
	why = wrong_value(verb, values)
	if why then
		return nil, why
	end
	return { verb = verb, values = values }
end

-- What a script asks for: { pool, capacity, stage_in = {…}, stage_out = {…}, drain = {…} }, or nil and what is wrong with it.
function directives.read_request(script)
	local lines, why = directive_lines(script)
	if not lines then
		return nil, why
	end
	local request = { stage_in = {}, stage_out = {}, drain = {} }
	for _, line in ipairs(lines) do
		local directive, wrong = read_directive(line)
		if not directive then
			return nil, line:gsub("%c", "?") .. ": " .. wrong
		elseif directive.verb ~= "pool" then
			table.insert(request[directive.verb], directive.values)
		elseif request.pool then
			return nil, line .. ": a job has one pool"
		else
			request.pool, request.capacity = directive.values.pool, directive.values.capacity
		end
	end
	if not request.pool then
		return nil, "no line " .. DIRECTIVE .. " pool=… capacity=… says where the job's directory is to be"
	end
	return request
end

return directives
